"""For all tests: how property tests draw their examples.

The same code gets the same examples, so that a change is judged by what it changes. `LOGYARD_EXPLORE=1` (make proof)
draws new ones at every run. No example fails for having been slow: the machine is shared.
"""

import os

from hypothesis import settings

settings.register_profile("logyard", deadline=None, derandomize="LOGYARD_EXPLORE" not in os.environ)
settings.load_profile("logyard")
