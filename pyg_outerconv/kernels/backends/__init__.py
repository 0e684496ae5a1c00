"""Backends of the primitives, one a file; Triton's kernels are in ``triton/``."""
