"""`python -m placebench`: the command line."""

import sys

from placebench.cli import main

sys.exit(main())
