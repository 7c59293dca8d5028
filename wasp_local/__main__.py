"""`python -m wasp_local` is the command `wasp-local`."""

import sys

from wasp_local.cli import main

if __name__ == "__main__":
    sys.exit(main())
