"""Backends of the primitives, one a file; Triton's kernels are in ``triton/``.

There is none in numba: a product in it, row by row in two threads, was 1.06 times as fast as MKL's
in the median of what was tried. A factor of 1.2 would be worth a dependency.
"""
