"""`python -m mcptrio.cli` is `mcptrio`."""

import sys

from mcptrio.cli import main

sys.exit(main())
