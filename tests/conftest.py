"""What has to be said before torch and Triton are first imported, for all tests and the processes they start.

Kernels run in Triton's interpreter where there is no GPU. Tests run side by side: two workers with two threads each
wait for one another at every barrier, so each has one. Tests that need a compiler, more threads or a clean environment
ask for them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
