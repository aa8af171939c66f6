"""What the log says of requests that close their connection."""

import structlog

from logyard.broker.errors import CorruptData

# What a TLS handshake's first bytes look like as a frame's size: record type 22, version 3.1 to 3.3.
_TLS_RECORDS = (0x160301, 0x160302, 0x160303)

log = structlog.get_logger("logyard.connection")


def tell_of_size(size: int, size_max: int, peer: str) -> None:
    """Log that the next request announces a size that no request may have."""
    hint = {"note": "the client may speak TLS"} if size >> 8 in _TLS_RECORDS else {}
    log.warning("frame refused", size=size, limit=size_max, peer=peer, **hint)


def tell_of_failure(problem: BaseException, peer: str) -> None:
    """Log why a request has no answer."""
    if isinstance(problem, CorruptData):
        log.warning("request refused, connection closed", peer=peer, error=str(problem))
    else:
        log.error("request failed, connection closed", peer=peer, exc_info=problem)
