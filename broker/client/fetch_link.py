"""A follower's link to a leader: Fetch, ListOffsets, OffsetForLeaderEpoch (implements `replication.ports.FetchLink`).

Records are not copied out of the buffer into which they were received.
"""

from collections.abc import Callable, Sequence

from logyard.broker.client.link import Link
from logyard.broker.client.peer_security import PLAIN, PeerSecurity
from logyard.broker.errors import ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication.events import (
    EpochAnswer,
    EpochQuery,
    FollowerFetch,
    FollowerFetchAnswer,
    OffsetAnswer,
    OffsetQuery,
)
from logyard.broker.replication.fetch import wire
from logyard.broker.replication.fetch.followed_topics import FollowedTopics
from logyard.broker.replication.ports import LinkError

LIST_OFFSETS = 2
OFFSET_FOR_LEADER_EPOCH = 23

FindBroker = Callable[[int], BrokerInfo | None]


class ReplicaFetchLink:
    """A follower's link to one leader; each request looks up the leader's address."""

    def __init__(
        self,
        leader: int,
        find: FindBroker,
        listener: str,
        replica_id: int,
        request_timeout_s: float,
        security: PeerSecurity = PLAIN,
    ) -> None:
        self._security = security
        self._leader = leader
        self._find = find
        self._listener = listener
        self._replica_id = replica_id
        self._request_timeout_s = request_timeout_s
        self._link: Link | None = None
        self._topics = FollowedTopics()

    def _connected(self) -> Link:
        broker = self._find(self._leader)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            raise LinkError(f"broker {self._leader} has no known address on listener {self._listener}")
        if self._link is None or (self._link.host, self._link.port) != (endpoint.host, endpoint.port):
            self.close()
            client_id = f"broker-{self._replica_id}-fetcher"
            self._link = Link(
                endpoint.host,
                endpoint.port,
                client_id=client_id,
                request_timeout_s=self._request_timeout_s,
                security=self._security,
            )
        return self._link

    async def fetch(self, request: FollowerFetch) -> FollowerFetchAnswer:
        link = self._connected()
        self._topics.asked(request)
        correlation_id = link.next_correlation_id()
        version, frame = wire.follower_frame(request, correlation_id, link.client_id)
        return wire.follower_answer(version, await link.request_frame(correlation_id, frame), self._topics.name)

    async def offsets_for_leader_epoch(self, queries: Sequence[EpochQuery], /) -> Sequence[EpochAnswer]:
        topics: dict[str, list[dict[str, int]]] = {}
        for query in queries:
            topics.setdefault(query.tp.topic, []).append(
                {
                    "partition": query.tp.partition,
                    "current_leader_epoch": query.current_leader_epoch,
                    "leader_epoch": query.epoch,
                }
            )
        asked = [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
        fields = {"replica_id": self._replica_id, "topics": asked}
        answer = await self._connected().request(OFFSET_FOR_LEADER_EPOCH, 4, fields)
        return [
            EpochAnswer(TopicPartition(t.topic, p.partition), ErrorCode(p.error_code), p.leader_epoch, p.end_offset)
            for t in answer.topics
            for p in t.partitions
        ]

    async def list_offsets(self, queries: Sequence[OffsetQuery], /) -> Sequence[OffsetAnswer]:
        topics: dict[str, list[dict[str, int]]] = {}
        for query in queries:
            topics.setdefault(query.tp.topic, []).append(
                {
                    "partition_index": query.tp.partition,
                    "current_leader_epoch": query.leader_epoch,
                    "timestamp": query.timestamp,
                }
            )
        asked = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        fields = {"replica_id": self._replica_id, "isolation_level": 0, "topics": asked}
        answer = await self._connected().request(LIST_OFFSETS, 9, fields)
        return [
            OffsetAnswer(
                TopicPartition(t.name, p.partition_index),
                ErrorCode(p.error_code),
                p.timestamp,
                p.offset,
                p.leader_epoch,
            )
            for t in answer.topics
            for p in t.partitions
        ]

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
