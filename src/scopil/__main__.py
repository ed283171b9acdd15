"""Runs the command line: `python -m scopil`."""

import sys

from scopil.cli import main
from scopil.cli.interrupts import stop_with_parent

stop_with_parent()
sys.exit(main())
