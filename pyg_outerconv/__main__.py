"""``python -m pyg_outerconv`` is ``outerconv``."""

import sys

from .cli import main

sys.exit(main())
