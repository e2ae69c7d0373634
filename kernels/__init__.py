"""Triton kernels for the paged KV cache: write, attention, copy.

One folder per operation; in each, `naive.py` says in plain torch what the Triton files beside it must compute.
`__version__` is set because transformers asks any package of this name for one.

Knows nothing of caches, models or schedulers: only of tensors, strides, block tables and slots.
"""

__version__ = "0.1.0"
