"""The command: `python benchmarks/peers`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder that holds this package
    from peers.command import main

    sys.exit(main())
