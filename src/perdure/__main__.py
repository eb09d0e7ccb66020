"""`python -m perdure`: the command-line tool."""

import sys

from perdure.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
