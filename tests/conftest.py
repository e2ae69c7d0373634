"""Kernels run in Triton's interpreter where there is no GPU, which has to be said before Triton is first imported.

Said here, for all tests: any of them may import a kernel on the way to something else. Tests that need a compiler or a
clean environment start processes of their own.
"""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
