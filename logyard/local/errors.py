"""What the launcher refuses or fails at."""


class LocalError(Exception):
    """Starting, stopping or finding something on this machine failed; the text is one line that says what to do."""
