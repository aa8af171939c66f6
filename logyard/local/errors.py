"""The errors of starting, stopping and finding things on this machine."""


class LocalError(Exception):
    """Starting, stopping or finding something on this machine failed; the text is one line that says what to do."""
