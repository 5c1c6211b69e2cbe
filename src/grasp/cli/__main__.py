"""`python -m grasp.cli`: the command without its script."""

import sys

from grasp.cli.parser import main

sys.exit(main())
