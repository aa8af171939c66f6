"""The follower's side of an incremental fetch session (KIP-227): what the leader knows is not sent again.

Rule 1: epoch 0 opens a session (and closes the old one of that id), and the leader's answer has its id; each answered
request increments the epoch, with 1 after 2**31 - 1.
Rule 2: after any failure the whole request is sent again.
"""

from collections.abc import Iterable, Sequence

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.replication.events import FollowerFetchAnswer, PartitionFetch
from logyard.broker.replication.ports import LinkError

EPOCH_MAX = 2**31 - 1
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`; 0 is reserved for opening a session."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1


class FollowerSession:
    """The session with one leader. `sent` is the request as the leader knows it."""

    __slots__ = ("_without_id", "epoch", "id", "sent", "uses_topic_ids")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.sent: dict[TopicPartition, PartitionFetch] = {}
        self.uses_topic_ids = True
        self._without_id = 0

    @property
    def is_full(self) -> bool:
        """Whether the next request has to name every partition."""
        return self.epoch == 0

    def open(self, wanted: Sequence[PartitionFetch]) -> None:
        """Start with exactly these partitions."""
        self.sent = {ask.tp: ask for ask in wanted}
        self._without_id = sum(not ask.topic_id.int for ask in wanted)
        self.uses_topic_ids = self._without_id == 0

    def change(
        self, wanted: Iterable[PartitionFetch], removed: Iterable[TopicPartition]
    ) -> tuple[list[PartitionFetch], list[tuple[TopicPartition, TopicId]]]:
        """Update `wanted` and drop `removed`; returns (partitions to send, partitions to forget)."""
        to_send: list[PartitionFetch] = []
        forgotten: list[tuple[TopicPartition, TopicId]] = []
        for tp in removed:
            known = self.sent.pop(tp, None)
            if known is not None:
                self._without_id -= not known.topic_id.int
                forgotten.append((tp, known.topic_id))
        for ask in wanted:
            known = self.sent.get(ask.tp)
            if known is not None and known.offset == ask.offset and known == ask:
                continue  # the offset first: it is what changes
            if known is not None:
                self._without_id -= not known.topic_id.int
                if known.topic_id.int != ask.topic_id.int:
                    forgotten.append((ask.tp, known.topic_id))
            self._without_id += not ask.topic_id.int
            self.sent[ask.tp] = ask
            to_send.append(ask)
        return to_send, forgotten

    @property
    def mixes_kinds(self) -> bool:
        """Whether partitions with and without topic ids are mixed: they cannot share a session, so a new one is
        needed."""
        return bool(self.sent) and (self._without_id == 0) != self.uses_topic_ids

    def answered(self, answer: FollowerFetchAnswer) -> bool:
        """Record the leader's answer; returns whether its partitions are to be used.

        Raises LinkError if it refuses for a reason that a new session does not mend: not to be asked again at once.
        """
        if answer.error is not ErrorCode.NONE:
            self.epoch = 0
            if answer.error not in _SESSION_ERRORS:
                raise LinkError(f"it refuses to be fetched from: {answer.error.name}")
            if answer.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = 0
            return False
        if self.is_full or answer.session_id == 0:
            self.id = answer.session_id
            self.epoch = 1 if answer.session_id else 0
        else:
            self.epoch = next_epoch(self.epoch)
        return True

    def failed(self) -> None:
        """No answer came: the leader may or may not have advanced the session, so open a new one with the same id."""
        self.epoch = 0
