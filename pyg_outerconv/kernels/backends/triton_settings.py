"""What the environment says of Triton, for the backend and its kernels; triton is not imported."""

from __future__ import annotations

import os

# As the kernels' decorator will read it: they are imported when a primitive first runs.
INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")

# Set to 1, the number of warps is tuned by the clock: see ``triton/launch.py``.
TUNE = "PYG_OUTERCONV_TRITON_TUNE"
