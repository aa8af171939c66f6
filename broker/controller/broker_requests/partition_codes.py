"""What a broker's answer to LeaderAndIsr says of each partition: there may be very many."""

from collections.abc import Iterator, Mapping
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.portions import AT_ONCE

_CODES = {code.value: code for code in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """Return the code by its number; UNKNOWN_SERVER_ERROR for an unknown number."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


class PartitionCodes:
    """`codes` has those that are translated: none before `translate`, which the answer's handler goes through.

    What is translated stays, should the handler have to begin again, and the decoded answer goes, in portions as well.
    """

    __slots__ = ("_by_id", "_by_name", "codes")

    def __init__(self, response: Any) -> None:
        self._by_name: list[Any] = getattr(response, "partition_errors", None) or []
        self._by_id: list[Any] = getattr(response, "topics", None) or []
        self.codes: dict[TopicPartition, ErrorCode] = {}

    def translate(self, names: Mapping[TopicId, str]) -> Iterator[int]:
        """Translate a portion at a time; yields what it cost: 1 for a partition or a topic.

        Versions 5+ answer by topic id. A topic without one cannot be told apart, and one that is not in `names` any
        more is gone: both are left out.
        """
        while self._by_name:
            portion = _last_of(self._by_name)
            for each in portion:
                self.codes[TopicPartition(each.topic_name, each.partition_index)] = error_code(each.error_code)
            yield len(portion)
        while self._by_id:
            topic = self._by_id[-1]
            name = names.get(topic.topic_id)
            portion = _last_of(topic.partition_errors)
            if name is not None:
                for each in portion:
                    self.codes[TopicPartition(name, each.partition_index)] = error_code(each.error_code)
            if not topic.partition_errors:
                self._by_id.pop()
            yield 1 + len(portion)


def _last_of(left: list[Any]) -> list[Any]:
    portion = left[-AT_ONCE:]
    del left[-AT_ONCE:]
    return portion
