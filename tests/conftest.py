"""For all tests: no example of a property test fails for having been slow; the machine is shared."""

from hypothesis import settings

settings.register_profile("logyard", deadline=None)
settings.load_profile("logyard")
