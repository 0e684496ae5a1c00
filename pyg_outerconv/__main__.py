"""``python -m pyg_outerconv`` is ``outerconv``."""

import sys

from .lab.cli import main

if __name__ == "__main__":  # processes that it starts import this file
    sys.exit(main())
