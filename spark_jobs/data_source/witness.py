"""Whether topics and partitions that one broker's answer lacks exist no more.

A stream that has read them has lost data then. But one broker's silence is no proof: it may have just started, or not
have heard of them yet. So the controller is asked too, a moment later.
"""

import time
from collections.abc import Collection

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.command import say
from logyard.spark_jobs.data_source.options import Options
from logyard.spark_jobs.data_source.ranges import arguments_of
from logyard.spark_jobs.metadata import ClusterUnreachable, Metadata

PAUSE_S = 1.0


def gone_topics(options: Options, topics: Collection[str]) -> list[str]:
    """Return those that do not exist, sorted; of those of which nobody can tell now none. Raises JobFailed, NotTold."""
    told = _told(options, topics)
    return [] if told is None else sorted(set(topics) - set(told.topics))


def gone_partitions(options: Options, tps: Collection[TopicPartition]) -> frozenset[TopicPartition]:
    """Return those that do not exist, as `gone_topics` does."""
    topics = {tp.topic for tp in tps}
    told = _told(options, topics)
    return frozenset() if told is None else frozenset(tps) - {tp for tp, _ in told.partitions(sorted(topics))}


def _told(options: Options, topics: Collection[str]) -> Metadata | None:
    """Return what the controller knows of topics, None if that cannot be told now."""
    if not topics:
        return None
    time.sleep(PAUSE_S)
    try:
        return clusters.witnessed(arguments_of(options), sorted(topics))
    except ClusterUnreachable as error:
        say(f"logyard: a broker does not know {min(topics)}, and it cannot be told now whether it was deleted: {error}")
        return None
