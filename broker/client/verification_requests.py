"""Asks coordinators whether partitions are in transactions, or to add them, with AddPartitionsToTxn (facts §17.3)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logyard.broker.client.link import Link
from logyard.broker.client.offered import highest_offered
from logyard.broker.client.peer_security import PLAIN, PeerSecurity
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions.verification import Answers, Question, VerificationNotOffered

ADD_PARTITIONS = 24
# From v4 on a request may have many transactions; v5 adds TRANSACTION_ABORTABLE.
LOWEST, HIGHEST = 4, 5


class VerificationRequests:
    """The links to coordinators, made at the first request. Implements `transactions.verification.Ask`."""

    def __init__(self, listener: str, client_id: str, request_timeout_s: float, security: PeerSecurity = PLAIN) -> None:
        self._security = security
        self._listener, self._client_id, self._request_timeout_s = listener, client_id, request_timeout_s
        self._links: dict[int, Link] = {}
        self._versions: dict[int, int] = {}

    async def __call__(self, broker: BrokerInfo, questions: Sequence[Question], /) -> Answers:
        """Ask; raises LinkError, CorruptData, VerificationNotOffered, ApiError (the whole request is refused)."""
        link = self._link(broker)
        if not link.connected:
            # Another release may run there now.
            self._versions[broker.id] = await highest_offered(link, ADD_PARTITIONS)
        version = self._versions[broker.id]
        if version < LOWEST:
            raise VerificationNotOffered(f"broker {broker.id} offers AddPartitionsToTxn up to version {version} only")
        fields = {"transactions": [_fields(question) for question in questions]}
        answer = await link.request(ADD_PARTITIONS, min(version, HIGHEST), fields)
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        return {
            result.transactional_id: {
                TopicPartition(topic.name, part.partition_index): ErrorCode(part.partition_error_code)
                for topic in result.topic_results
                for part in topic.results_by_partition
                if part.partition_error_code
            }
            for result in answer.results_by_transaction
        }

    def _link(self, broker: BrokerInfo) -> Link:
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            raise LinkError(f"broker {broker.id} has no endpoint on the listener {self._listener}")
        link = self._links.get(broker.id)
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
            self._links[broker.id] = link
        return link

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def _fields(question: Question) -> Mapping[str, Any]:
    return {
        "transactional_id": question.transactional_id,
        "producer_id": question.producer_id,
        "producer_epoch": question.epoch,
        "verify_only": not question.adds,
        "topics": _topics(question.partitions),
    }


def _topics(partitions: Iterable[TopicPartition]) -> list[Mapping[str, Any]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
