"""Where a client that asked the wrong broker finds the leader, told with the refusal itself (KIP-951)."""

from collections.abc import Iterable

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.protocol.produce import NodeEndpoint


def endpoints_of(metadata: MetadataCache, listener: str, leaders: Iterable[int]) -> list[NodeEndpoint]:
    """The addresses of these brokers on the client's listener, each once, without those that are dead or not on it."""
    found = []
    for leader in sorted(set(leaders)):
        broker = metadata.brokers.get(leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return found
