"""The names of the topics in a follower's session with one leader: an answer has only their ids."""

from logyard.broker.model import TopicId
from logyard.broker.replication.events import FollowerFetch


class FollowedTopics:
    """Names by id. A topic is forgotten with its last partition: else a link would keep every topic that was deleted
    since it was made."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        # By the number of an id, whose hash and comparison are C's: name and partitions.
        self._topics: dict[int, tuple[str, set[int]]] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def name(self, topic_id: TopicId) -> str | None:
        """Return the topic's name, None if it is not in the session."""
        known = self._topics.get(topic_id.int)
        return None if known is None else known[0]

    def asked(self, request: FollowerFetch) -> None:
        """Take in the partitions that a request adds to the session, and those that it removes."""
        topics = self._topics
        if request.session_epoch == 0:  # a new session: all of it is named
            topics.clear()
        for tp, topic_id in request.forgotten:
            known = topics.get(topic_id.int)
            if known is not None:
                known[1].discard(tp.partition)
                if not known[1]:
                    del topics[topic_id.int]
        for ask in request.partitions:
            number = ask.topic_id.int
            known = topics.get(number)
            if known is not None:
                known[1].add(ask.tp.partition)
            elif number:
                topics[number] = (ask.tp.topic, {ask.tp.partition})
