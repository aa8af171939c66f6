"""Reading many znodes over one session of kazoo: requests are sent before earlier ones are answered."""

from collections.abc import Callable, Sequence
from typing import Any

from logyard.broker.znodes.ops import Znode

_IN_FLIGHT = 100


def read_znodes(client: Any, paths: Sequence[str], wait: Callable[[Any], Any]) -> list[Znode | None]:
    """Read znodes in the order of their paths, up to 100 requests under way; None where there is none.

    :param client: a started KazooClient.
    :param wait: takes one of kazoo's pending answers and returns what it holds; raises NoNodeError where there is no
        znode, and its caller's own errors where the session fails.
    """
    from kazoo.exceptions import NoNodeError

    def znode(answer: Any) -> Znode | None:
        try:
            data, stat = wait(answer)
        except NoNodeError:
            return None
        return Znode(data, stat.version, stat.czxid, stat.mtime, stat.ephemeralOwner, stat.mzxid)

    found: list[Znode | None] = []
    for first in range(0, len(paths), _IN_FLIGHT):
        pending = [client.get_async(path) for path in paths[first : first + _IN_FLIGHT]]
        found.extend(map(znode, pending))
    return found
