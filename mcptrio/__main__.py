"""`python -m mcptrio` is `mcptrio`."""

import sys

from mcptrio.cli import main

sys.exit(main())
