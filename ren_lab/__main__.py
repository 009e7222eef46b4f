"""`python -m ren_lab` is the command `ren-lab`."""

import sys

from ren_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
