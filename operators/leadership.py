"""Leader elections: preferred ones, and unclean ones for partitions without a leader."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.cluster import elections
from logyard.admin.cluster.presence import require_told
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import ClusterClient, Pause
from logyard.admin.reassignment.plan import Plan
from logyard.broker.model import TopicPartition
from logyard.operators import outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_json, as_mapping, as_names, as_truth
from logyard.operators.triggers.cluster import some

_PATIENCE_S = 60.0


class ElectLeadersOperator(ClusterOperator):
    """Elect the preferred leader of every partition that another replica leads.

    Returns elected (a list of partitions), kind ("preferred" or "unclean"), with `dry_run` would_elect, and with a plan
    planned (the number of its partitions).

    :param topics: topics, a list or its JSON; empty: all topics. (templated)
    :param plan: instead of topics, a plan of moves, or its JSON: only its partitions, but for those that are deleted. A
        plan that has none, `{}` too, elects none; None: by topics. (templated)
    :param unclean: instead, elect any live replica for partitions without a leader. Records may be lost. (templated)
    """

    tells = staticmethod(outcomes.elected)
    template_fields = ("topics", "plan", "unclean", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        plan: Mapping[str, Any] | str | None = None,
        unclean: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.plan = plan
        self.unclean = unclean

    def execute(self, context: Context) -> dict[str, Any]:
        plan = self._given_plan()
        topics = as_names("topics", self.topics) or None
        if plan is not None:
            topics = sorted({move.tp.topic for move in plan.moves})
        unclean = as_truth("unclean", self.unclean)
        kind = elections.UNCLEAN if unclean else elections.PREFERRED
        found: dict[str, Any] = {"kind": kind} if plan is None else {"kind": kind, "planned": len(plan.moves)}
        hook = self.hook
        with hook.client() as client:
            before = client.witnessed(topics)  # who leads, by a broker that lags, is no longer so
            require_told(before, topics or ())
            absent = [topic for topic in topics or () if topic not in before.topics]
            if plan is not None:
                plan.refuse_elsewhere(before)
            elif absent:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topics {some(absent)} do not exist")
            wanted = before.unled(topics) if unclean else before.not_preferred(topics)
            if plan is not None:
                planned = {move.tp for move in plan.moves}
                wanted = [tp for tp in wanted if tp in planned]
            if self.checks_only:
                return {"elected": [], "would_elect": [str(tp) for tp in wanted], **found}
            elected = elect_unclean(client, wanted) if unclean else elect_preferred(client, hook.pause(), wanted)
        return {"elected": [str(tp) for tp in elected], **found}

    def _given_plan(self) -> Plan | None:
        """None where there is none: one without moves, of a task that found nothing to move, is another thing."""
        if as_json("plan", self.plan) is None:
            return None
        given = as_mapping("plan", self.plan)
        return Plan.from_json(given) if given else Plan("", ())


def elect_unclean(client: ClusterClient, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Elect any live replica for these partitions, which have no leader; returns those that got one now.

    Raises ApiError.
    """
    answers = client.elect_leaders(partitions, unclean=True) if partitions else {}
    for tp, refusal in answers.items():
        if refusal is not None and refusal.code is not ErrorCode.ELECTION_NOT_NEEDED:
            raise ApiError(refusal.code, f"{tp}: {refusal}")
    return [tp for tp in partitions if tp in answers and answers[tp] is None]


def elect_preferred(client: ClusterClient, pause: Pause, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Make the first replica of each partition its leader; returns those that were elected now.

    If a preferred replica is not in the ISR yet, the election is repeated for a minute. Raises ApiError.
    """
    elected: list[TopicPartition] = []
    todo = list(partitions)
    deadline = pause.monotonic() + _PATIENCE_S
    while todo:
        answers = client.elect_leaders(todo)
        elected += [tp for tp in todo if tp in answers and answers[tp] is None]
        todo = _again(answers)
        if todo and pause.monotonic() >= deadline:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"preferred leaders of {some(todo)} are not in the ISR"
            )
        if todo:
            pause.sleep(1.0)
    return elected


def _again(answers: Mapping[TopicPartition, ApiError | None]) -> list[TopicPartition]:
    todo = []
    for tp, refusal in answers.items():
        if refusal is None or refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        if refusal.code is not ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            raise ApiError(refusal.code, f"{tp}: {refusal}")
        todo.append(tp)
    return todo
