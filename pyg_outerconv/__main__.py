"""``python -m pyg_outerconv`` is ``outerconv``."""

import sys

from .lab.cli import main

sys.exit(main())
