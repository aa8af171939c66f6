"""How much is tried: all of it in `make proof`, which sets LOGYARD_EXPLORE, and a part elsewhere."""

import os

IS_PROOF = "LOGYARD_EXPLORE" in os.environ
