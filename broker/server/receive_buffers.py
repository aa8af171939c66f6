"""Buffers of connections that have nothing to receive: kept for whichever connection receives next.

A connection needs one only from a receive to the end of what was received: most of many connections are silent at any
moment. A handler keeps no view of the bytes beyond its call, so a buffer that holds nothing unread is free.
"""

from collections import deque

BUFFER_BYTES = 64 * 1024
SPARE_MAX = 64
NONE = bytearray()
"""What a connection has that needs none; never written to."""

_spare: deque[bytearray] = deque(maxlen=SPARE_MAX)


def take() -> bytearray:
    """Return a buffer of BUFFER_BYTES; what is in it is somebody else's and means nothing."""
    return _spare.pop() if _spare else bytearray(BUFFER_BYTES)


give_back = _spare.append
"""Keep a buffer of BUFFER_BYTES for the next one that needs it, instead of the oldest of very many."""
