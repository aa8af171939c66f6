"""Reading many znodes over one session of kazoo: requests are sent before earlier ones are answered."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.model import BrokerInfo
from logyard.broker.znodes import brokers
from logyard.broker.znodes.ops import Znode

_IN_FLIGHT = 100


def read_znodes(client: Any, paths: Sequence[str], wait: Callable[[Any], Any]) -> list[Znode | None]:
    """Read znodes in the order of their paths, with up to 100 requests in flight; None for a missing znode.

    :param client: a started KazooClient.
    :param wait: takes one of kazoo's pending answers and returns its value; raises NoNodeError if there is no znode,
        and its caller's own errors if the session fails.
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


def registrations(
    names: Iterable[str], read: Callable[[Sequence[str]], Sequence[Znode | None]]
) -> dict[int, BrokerInfo]:
    """Return the live brokers by id; one whose registration cannot be decoded has no listeners.

    :param names: the children of `/brokers/ids`.
    :param read: returns the znodes of paths, in their order.
    """
    ids = sorted(int(name) for name in names if name.isdecimal())
    found: dict[int, BrokerInfo] = {}
    for broker, znode in zip(ids, read([brokers.path(broker) for broker in ids]), strict=True):
        if znode is not None:
            try:
                found[broker] = brokers.decode(broker, znode)
            except CorruptData:
                # Its ephemeral znode exists, so it is alive; only its addresses are unknown.
                found[broker] = BrokerInfo(broker, (), epoch=znode.czxid)
    return found
