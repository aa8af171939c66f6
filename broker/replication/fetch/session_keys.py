"""By what a fetch session finds a partition: in what was asked, in the answer, and in what is forgotten."""

from logyard.broker.model import TopicId
from logyard.broker.replication.events import FetchedPartition, PartitionFetch

SessionKey = tuple[int | str, int]
"""A topic's id as a number, or its name, and the partition. Numbers are hashed and compared in C, a UUID is not."""


def key_of(ask: PartitionFetch) -> SessionKey:
    """By topic id if there is one: two topics that had the same name are different.

    A client may ask for the id zero too, which no topic has, and no name belongs to.
    """
    return (ask.topic_id.int or ask.tp.topic, ask.tp.partition)


def answered_key(answer: FetchedPartition, uses_topic_ids: bool) -> SessionKey:
    """The key of what was asked."""
    topic = answer.tp.topic
    return ((answer.topic_id.int or topic) if uses_topic_ids else topic, answer.tp.partition)


def forgotten_key(topic: str | None, topic_id: TopicId | None, partition: int) -> SessionKey:
    """The key of what a request forgets; of name and id it has one."""
    return ((0 if topic_id is None else topic_id.int) or topic or "", partition)
