"""How long who looks again and again waits between two looks."""

import time

FIRST_S, LONGEST_S, GROWTH = 0.01, 0.1, 1.25


class Pauses:
    """Short ones first: most of what tests wait for comes within a moment, and they wait for it a thousand times."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def sleep(self) -> None:
        """Sleep for the next pause: ten ms, then a quarter longer each time, a tenth of a second at most."""
        time.sleep(self._next_s)
        self._next_s = min(self._next_s * GROWTH, LONGEST_S)
