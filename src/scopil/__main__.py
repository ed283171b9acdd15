"""`python -m scopil` is `scopil`."""

import sys

from scopil.cli import main

sys.exit(main())
