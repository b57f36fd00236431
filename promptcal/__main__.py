"""``python -m promptcal`` is ``promptcal``."""

import sys

from promptcal.cli import main

sys.exit(main())
