"""Hanging transactions: end those that no coordinator will end."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.settings import BadSettings
from logyard.admin.transactions.hanging import find_hanging, partitions_to_search
from logyard.admin.transactions.transactions import AbortMarker, OpenTransaction
from logyard.operators import outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_integer, as_names
from logyard.operators.planned import as_plan, refuse_another_cluster


class AbortHangingTransactionsOperator(ClusterOperator):
    """End the transactions that are open on a partition, and that no coordinator knows of: nobody else ends them.

    They hold back consumers that read committed records only, and compaction. What is ended counts as aborted on its
    partition. A dry run returns them; passed on as `plan`, only these are ended, if they still hang.

    :param topics: topics, a list or its JSON; empty: all topics. (templated)
    :param idle_minutes: for how long nothing was written in the transaction; at least the brokers'
        `transaction.max.timeout.ms`. (templated)
    :param plan: the result of a dry run, or its JSON. (templated)
    """

    tells = staticmethod(outcomes.hanging)
    template_fields = ("topics", "idle_minutes", "plan", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        idle_minutes: int | str = 15,
        plan: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.idle_minutes = idle_minutes
        self.plan = plan
        self._has_plan = bool(plan)

    def execute(self, context: Context) -> dict[str, Any]:
        topics = as_names("topics", self.topics)
        idle_ms = as_integer("idle_minutes", self.idle_minutes, 0) * 60_000
        with self.hook.client() as client:
            cluster_id = client.snapshot([]).cluster_id
            planned = self._planned(cluster_id)
            now_ms = time.time_ns() // 1_000_000
            searched = partitions_to_search(client, topics or None, None)
            found = find_hanging(client, searched, now_ms=now_ms, idle_ms=idle_ms)
            hanging = [one for one in found if planned is None or _key(as_json(one)) in planned]
            for one in hanging:
                self.log.info("%s: hangs from offset %s, producer %d", one.tp, *_start(one))
                if not self.checks_only:
                    client.write_abort_marker(AbortMarker.of(one))
        found_now = [as_json(one) for one in hanging]
        return {"hanging": found_now, "cluster_id": cluster_id, "dry_run": self.checks_only}

    def _planned(self, cluster_id: str) -> set[tuple[Any, ...]] | None:
        """What identifies the transactions of the plan; None without one. Raises BadSettings."""
        plan = as_plan(self.plan, is_given=self._has_plan)
        if not plan:
            return None
        refuse_another_cluster(plan, cluster_id)
        try:
            return {_key(one) for one in plan["hanging"]}
        except (KeyError, TypeError):
            raise BadSettings("plan: expected the result of a dry run of AbortHangingTransactionsOperator") from None


def as_json(found: OpenTransaction) -> dict[str, Any]:
    """A hanging transaction as an operator returns it."""
    producer = found.producer
    return {
        "topic": found.tp.topic,
        "partition": found.tp.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "start_offset": producer.start_offset,
        "last_ms": producer.last_ms,
    }


def _key(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """What no other transaction has in common with this one."""
    return tuple(found[name] for name in ("topic", "partition", "producer_id", "producer_epoch", "start_offset"))


def _start(found: OpenTransaction) -> tuple[int | None, int]:
    return found.producer.start_offset, found.producer.producer_id
