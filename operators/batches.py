"""Topics in lists for task mapping: one Spark job works through a list, and pays Spark's start once."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from logyard.admin.settings import BadSettings
from logyard.operators import outcomes
from logyard.operators.airflow_names import AirflowSkipException
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_integer, as_names

MAX_TOPICS_A_JOB = 100
"""Spark's start takes 7 to 11 s (docs/facts), so about a tenth of a second a topic is left of it."""


def batches(topics: Sequence[str], max_topics_a_job: int) -> list[list[str]]:
    """Deal topics to as few lists as possible, at most so many to each; the first ones to different lists.

    So topics that come largest first make lists of about the same size. Raises BadSettings.
    """
    if max_topics_a_job < 1:
        raise BadSettings(f"max_topics_a_job: a number above 0 is expected, not {max_topics_a_job}")
    count = -(-len(topics) // max_topics_a_job)
    return [list(topics[number::count]) for number in range(count)]


class BatchTopicsOperator(ClusterOperator):
    """Split topics into lists, one for each Spark job, for task mapping. Returns the lists.

    :param topics: topics, a list or its JSON. (templated)
    :param max_topics_a_job: the most topics in a list. (templated)
    :param skip_without: skip the task, and those that follow, instead of failing, if no topic is given.
    """

    tells = staticmethod(outcomes.chosen)
    template_fields = ("topics", "max_topics_a_job", *ClusterOperator.template_fields)

    def __init__(
        self,
        *,
        topics: Sequence[str] | str,
        max_topics_a_job: int | str = MAX_TOPICS_A_JOB,
        skip_without: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.max_topics_a_job = max_topics_a_job
        self.skip_without = skip_without

    def execute(self, context: Context) -> list[list[str]]:
        topics = list(dict.fromkeys(as_names("topics", self.topics)))
        if not topics and self.skip_without:
            raise AirflowSkipException("no topics are given, neither by the factory nor by the form")
        if not topics:
            raise BadSettings("topics: name at least one topic")
        return batches(topics, as_integer("max_topics_a_job", self.max_topics_a_job, MAX_TOPICS_A_JOB))
