"""Reports on topics: what they retain, and which of them should be compacted."""

import time
from collections.abc import Sequence
from typing import Any

import pendulum
from airflow.sdk import Context

from logyard.admin.quantities import size
from logyard.admin.settings import BadSettings
from logyard.admin.topics import retention
from logyard.operators import outcomes
from logyard.operators.airflow_names import AirflowSkipException
from logyard.operators.base import ClusterOperator
from logyard.operators.batches import batches
from logyard.operators.fields import as_integer, as_names


class RetentionReportOperator(ClusterOperator):
    """Report what topics retain: bytes, records, limits, records past their retention, and suspicious settings.

    Returns topics (a list, the largest first), bytes, records, findings (topic → texts).

    :param topics: topics, a list or its JSON; empty: all but internal ones. (templated)
    """

    tells = staticmethod(outcomes.retained)
    template_fields = ("topics", *ClusterOperator.template_fields)

    def __init__(self, *, topics: Sequence[str] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topics = topics

    def execute(self, context: Context) -> dict[str, Any]:
        topics = as_names("topics", self.topics) or None
        with self.hook.client() as client:
            found = retention.read(client, topics, round(time.time() * 1000))
        for entry in found:
            self.log.info(
                "%s (%s; %s): %s, %d records, %d past their retention",
                entry.topic, entry.policy, limits(entry), size(entry.bytes_all), entry.records, entry.overdue,
            )  # fmt: skip
            for text in entry.findings:
                self.log.warning("%s: %s", entry.topic, text)
        return {
            "topics": [entry.as_json() for entry in found],
            "bytes": sum(entry.bytes_all for entry in found),
            "records": sum(entry.records for entry in found),
            "findings": {entry.topic: list(entry.findings) for entry in found if entry.findings},
        }


def limits(entry: retention.TopicRetention) -> str:
    """What limits a topic, for a log line: `1 week, 1.0 GiB`."""
    found = [] if entry.retention_ms is None else [duration(entry.retention_ms)]
    found += [] if entry.retention_bytes is None else [size(entry.retention_bytes)]
    return ", ".join(found) or "no limit"


def duration(milliseconds: int) -> str:
    """A duration in words; in ms if it is shorter than a second, or too long for a calendar."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    try:
        return pendulum.duration(milliseconds=milliseconds).in_words()
    except OverflowError:
        return f"{milliseconds} ms"


class ChooseCompactionOperator(ClusterOperator):
    """Choose compacted topics for CompactSegmentsOperator, in lists for task mapping. Returns the lists.

    If there are none, the tasks that follow are skipped.

    :param topics: compact exactly these, instead of choosing. (templated)
    :param limit: the most topics to choose, the largest first. (templated)
    :param bytes_min: leave out topics with fewer bytes, all replicas together. (templated)
    :param max_topics_a_job: the most topics in a list. (templated)
    """

    tells = staticmethod(outcomes.chosen)
    template_fields = ("topics", "limit", "bytes_min", "max_topics_a_job", *ClusterOperator.template_fields)

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        limit: int | str = 10,
        bytes_min: int | str = 0,
        max_topics_a_job: int | str = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.limit = limit
        self.bytes_min = bytes_min
        self.max_topics_a_job = max_topics_a_job

    def execute(self, context: Context) -> list[list[str]]:
        given = as_names("topics", self.topics)
        chosen = list(dict.fromkeys(given)) or self._choose()
        if not chosen:
            raise AirflowSkipException("no compacted topic has records")
        return batches(chosen, as_integer("max_topics_a_job", self.max_topics_a_job, 1))

    def _choose(self) -> list[str]:
        limit = as_integer("limit", self.limit, 10)
        if limit < 1:
            raise BadSettings(f"limit: a number above 0 is expected, not {limit}")
        with self.hook.client() as client:
            snapshot = client.snapshot()
            names = [name for name, topic in snapshot.topics.items() if not topic.internal]
            # Of one that was deleted meanwhile, or whose settings this user may not see, nothing is told.
            policies = {name: retention.policy_of(found) for name, found in client.topics_configs(names).items()}
            compacted = [name for name, policy in policies.items() if "compact" in policy]
            sizes, unsized = retention.read_sizes(client, snapshot, compacted)
        for broker, why in unsized.items():
            self.log.warning("the bytes on broker %d are not known and do not count: %s", broker, why)
        return retention.compaction_candidates(
            snapshot, policies, sizes, limit=limit, bytes_min=as_integer("bytes_min", self.bytes_min, 0)
        )
