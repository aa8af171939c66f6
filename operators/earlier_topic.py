"""Which topic a task's first try was about to work on, for the tries that follow (since Airflow 3.3)."""

from typing import Any

from airflow.sdk import Context

from logyard.admin.topics.changes import TopicConflict

_STORED = "logyard_topic_of_first_try"


class EarlierTopic:
    """What is kept of a topic between the tries of one task; nothing before Airflow 3.3."""

    def __init__(self, context: Context, topic: str) -> None:
        self._store, self._max_tries, self._topic = context.get("task_state_store"), context["ti"].max_tries, topic

    def known(self, cluster_id: str) -> str | None:
        """The topic's id at an earlier try, None if there is none, or the task was cleared since, to do it again.

        Raises TopicConflict where that was in another cluster: the connection was edited, and ids of one cluster say
        nothing of what is in the other.
        """
        known: Any = self._store.get(_STORED) if self._store is not None else None
        if not isinstance(known, dict) or known.get("topic") != self._topic:
            return None
        if known.get("max_tries") != self._max_tries:
            return None
        if known.get("cluster_id", cluster_id) != cluster_id:
            raise TopicConflict(
                f"topic {self._topic}: the connection led to cluster {known['cluster_id']} at the first try, and leads "
                f"to {cluster_id} now: nothing is deleted; clear the task to do it there"
            )
        topic_id: str | None = known.get("topic_id")
        return topic_id

    def remember(self, topic_id: str | None, cluster_id: str) -> None:
        """Keep the id of the topic that is about to be worked on; where topics have no ids, nothing."""
        if self._store is not None and topic_id is not None:
            kept: Any = {"topic": self._topic, "topic_id": topic_id, "cluster_id": cluster_id}
            self._store.set(_STORED, {**kept, "max_tries": self._max_tries})

    def forget(self) -> None:
        """The work is done."""
        if self._store is not None and self._store.get(_STORED) is not None:
            self._store.delete(_STORED)
