"""Why a key or value stays undecoded, in one line for people."""

from logyard.admin.errors import LogyardError


class Undecoded(LogyardError):
    """The text says why, and has nothing of a log-in."""


class RegistryAway(Undecoded):
    """Nothing can be learnt of the record now: the registry does not answer, or not to this user, or the decoding
    process does not begin."""


class BadRecord(LogyardError):
    """A record that cannot be decoded now or later; the text names its partition and offset, and says why."""
