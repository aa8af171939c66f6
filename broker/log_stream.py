"""Where the log's lines go: a stream that may be full, or closed at its other end.

Rule: a line that cannot be written is lost, and raises nothing. The log often lies on the disk that is full, and
whoever logs is just then taking a directory offline. How many were lost is told as soon as a line can be written again.
"""

from typing import TextIO


class LossyStream:
    """A text stream over `stream` that never fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = 0

    def write(self, text: str) -> int:
        """Write and flush, or lose it."""
        told = f"{self._lost} lines of the log could not be written\n" if self._lost else ""
        try:
            self._stream.write(told + text)
            self._stream.flush()
        except (OSError, ValueError):  # the latter where it was closed
            self._lost += 1
        else:
            self._lost = 0
        return len(text)

    def flush(self) -> None:
        """Nothing is kept."""
