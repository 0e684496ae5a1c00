"""Triton kernels, one concept a file; each file ends with the plain functions that launch them.

Imported by ``triton_backend`` when a primitive first runs, because the decorator reads
``TRITON_INTERPRET`` then and because the package has to work without triton.

What all of them share:

- **A job a program.** A job is a row, or a piece of a long one (``balance``), for a block of heads
  and channels (``addressing``). Its entries are gathered a tile at a time, so that many loads are
  under way at once; sums stay in registers, spread over the tile, and are folded once at the end.
- **No atomics.** Pieces of a row leave partial results, which a second kernel adds in their order.
  So equal input gives equal bits.
- **Fixed block sizes**, chosen from shapes alone. Tuning by the clock would pick other orders of
  summation in other processes, and the bits would differ between two runs; so it has to be asked
  for (``PYG_OUTERCONV_TRITON_TUNE=1``, see ``launch``).
"""
