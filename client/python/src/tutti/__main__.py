"""`python -m tutti` is the command `tutti`."""

import sys

from ._programs import tutti

sys.exit(tutti())
