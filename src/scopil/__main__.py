"""`python -m scopil`."""

import os
import sys

from scopil.cli import main

if "SCOPIL_PARENT" in os.environ:  # a run that `scopil reproduce` has in hand
    from scopil.experiments.local import stop_with_parent

    stop_with_parent()
sys.exit(main())
