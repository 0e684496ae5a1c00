"""Settings of Triton in the environment; this module does not import triton."""

from __future__ import annotations

import os

# Read as Triton's decorator reads it when the kernels are imported, at the first primitive.
INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")

# If this variable is 1, the number of warps is tuned by timing; see ``triton/launch.py``.
TUNE = "PYG_OUTERCONV_TRITON_TUNE"
