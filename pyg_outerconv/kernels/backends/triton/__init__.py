"""Triton kernels, a primitive in each file; each file ends with the functions that launch them.

``triton_backend`` imports them when a primitive first runs, because Triton's decorator reads
``TRITON_INTERPRET`` at the import, and because the package works without triton.

All kernels have in common:

- **One job for each program.** A job is a row, or a piece of a long row (``balance``), for a block
  of heads and channels (``addressing``). Its entries are gathered in tiles, so that many loads run
  at the same time; sums stay in registers, one for each place of the tile, and are added up at the
  end.
- **No atomics.** Pieces of a row store partial results, which a second kernel adds in a fixed
  order. So equal input gives bitwise equal output.
- **Fixed block sizes**, which depend on shapes alone. Tuning by timing would choose different
  orders of summation in different processes, and bitwise different output; so it is off unless
  asked for (``PYG_OUTERCONV_TRITON_TUNE=1``, see ``balance.tuned``).
"""

import os

# Read as Triton's decorator reads it when the kernels are imported, at the first primitive.
INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")

# If this variable is 1, the number of warps is tuned by timing; see ``balance.tuned``.
TUNE = "PYG_OUTERCONV_TRITON_TUNE"
TUNED = os.environ.get(TUNE) == "1"
