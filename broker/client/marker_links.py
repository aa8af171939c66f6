"""WriteTxnMarkers to the brokers that lead a transaction's partitions: one link to each.

Version 2 is for markers that tell the transaction's version, where the broker offers it.
"""

from collections.abc import Callable, Mapping, Sequence

from logyard.broker.client.link import Link
from logyard.broker.client.offered import highest_offered
from logyard.broker.client.peer_security import PLAIN, PeerSecurity
from logyard.broker.errors import ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions.ports import Marker, MarkerAnswer

WRITE_TXN_MARKERS = 27
TELLS_VERSION = 2


class BrokerMarkerLinks:
    """The MarkerLinks of a real broker; a link is replaced when the broker's address changes."""

    def __init__(
        self,
        find: Callable[[int], BrokerInfo | None],
        listener: str,
        client_id: str,
        request_timeout_s: float,
        version: int,
        security: PeerSecurity = PLAIN,
    ) -> None:
        self._security = security
        self._find = find
        self._listener = listener
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._version = version
        self._links: dict[int, Link] = {}
        self._offered: dict[int, int] = {}

    async def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Mapping[int, MarkerAnswer]:
        """See `MarkerLinks`."""
        fields = {"markers": [_fields(marker) for marker in markers]}
        link, version = self._link(broker_id), self._version
        if not link.connected:
            self._offered.pop(broker_id, None)  # another release may run there now
        if any(marker.version >= TELLS_VERSION for marker in markers):
            if broker_id not in self._offered:
                self._offered[broker_id] = await highest_offered(link, WRITE_TXN_MARKERS)
            version = max(version, min(self._offered[broker_id], TELLS_VERSION))
        answer = await link.request(WRITE_TXN_MARKERS, version, fields)
        return {
            marker.producer_id: {
                TopicPartition(topic.name, p.partition_index): ErrorCode(p.error_code)
                for topic in marker.topics
                for p in topic.partitions
            }
            for marker in answer.markers
        }

    def _link(self, broker_id: int) -> Link:
        broker = self._find(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            raise LinkError(f"broker {broker_id} has no known address")
        link = self._links.get(broker_id)
        if link is None or (link.host, link.port) != (endpoint.host, endpoint.port):
            if link is not None:
                link.close()
            link = Link(
                endpoint.host,
                endpoint.port,
                client_id=self._client_id,
                request_timeout_s=self._request_timeout_s,
                security=self._security,
            )
            self._links[broker_id] = link
        return link

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def _fields(marker: Marker) -> dict[str, object]:
    topics: dict[str, list[int]] = {}
    for topic, partition in marker.partitions:
        topics.setdefault(topic, []).append(partition)
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.commits,
        "topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.version,
    }
