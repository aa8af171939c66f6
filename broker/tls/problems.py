"""What goes wrong with the settings and files of TLS."""

from logyard.broker.errors import LogyardError


class TlsProblem(LogyardError):
    """A store, or a setting of TLS, cannot be used. The text is one line that names the key and what to do."""
