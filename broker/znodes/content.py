"""How much a znode may hold."""

from logyard.broker.errors import ApiError, ErrorCode

# ZooKeeper answers a request above its jute.maxbuffer, 1 MiB where nobody has changed it, by closing this broker's
# connection. A request has a znode's content, its path, and often the names in it once more, for a notification.
CONTENT_BYTES_MAX = 900_000


def check_size(what: str, content: bytes, code: ErrorCode, before: int = 0) -> None:
    """Raise ApiError(code) if content is longer than ZooKeeper takes, and than the `before` bytes that the znode has
    now. `what` begins the text: "the settings"."""
    if len(content) > max(CONTENT_BYTES_MAX, before):
        raise ApiError(code, f"{what} take {len(content)} bytes: ZooKeeper holds {CONTENT_BYTES_MAX} at most")
