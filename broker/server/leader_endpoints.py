"""The leaders' addresses, which go into the answer to a client that asked another broker (KIP-951)."""

from collections.abc import Iterable

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.protocol.produce import NodeEndpoint


def endpoints_of(metadata: MetadataCache, listener: str, leaders: Iterable[int]) -> list[NodeEndpoint]:
    """Return the addresses of these brokers on the client's listener, without those that are dead or not on it."""
    found = []
    for leader in sorted(set(leaders)):
        broker = metadata.brokers.get(leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return found
