"""A search over the names of topics, groups and brokers; pure."""

from collections.abc import Iterable, Mapping

from logyard.admin.cluster.snapshot import BrokerNode


def best(names: Iterable[str], wanted: str) -> list[str]:
    """The names that hold every word of `wanted`: the name itself first, then those that begin with it, then others;
    short names before long ones."""
    whole = wanted.strip().lower()
    words = whole.split()
    found = []
    for name in names:
        low = name.lower()
        if all(word in low for word in words):
            rank = 0 if low == whole else 1 if low.startswith(whole) else 2
            found.append((rank, len(name), name))
    return [name for _, _, name in sorted(found)]


def best_brokers(brokers: Mapping[int, BrokerNode], known: Iterable[int], wanted: str) -> list[int]:
    """The brokers whose host or rack holds every word; a number is the begin of an id. "broker 3" finds broker 3.

    Of a dead broker only the id is known.
    """
    words = [word for word in wanted.lower().split() if word != "broker"]
    found = [broker for broker in sorted(known) if all(_is_about(word, broker, brokers.get(broker)) for word in words)]
    return sorted(found, key=lambda broker: (words != [str(broker)], broker))


def _is_about(word: str, broker: int, node: BrokerNode | None) -> bool:
    if word.isdecimal():
        return str(broker).startswith(word)
    return node is not None and (word in f"{node.host}:{node.port}".lower() or word in (node.rack or "").lower())
