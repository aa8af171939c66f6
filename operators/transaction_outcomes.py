"""What became of a task's transaction whose commit was not answered: kept in Airflow between tries, looked up in Kafka.

    before the commit   the result is kept, as one that is not known to be committed
    after its answer    it is known
    the next try        ends what earlier tries left open; then nobody but itself can commit. Not known: it looks
                        whether who reads committed records sees the last one. Then nothing is written again

A connection that leads to another cluster since says nothing of it, nor does a topic of the name that was made anew:
there the task writes.
A task that is cleared after it has succeeded writes again. Airflow keeps state between tries since 3.3.
"""

import time
from contextlib import closing
from typing import Any
from uuid import uuid4

from airflow.sdk import Context

from logyard.admin.errors import ApiError
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import conf
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.operators.hooks.records import RecordsFailed, RecordsHook, asked, cluster_of, library, refusal

Result = dict[str, Any]

_STORED, _STORED_TRY = "logyard_transaction", "logyard_transaction_try"
_TRANSACTION_MS_MAX = 900_000  # the brokers' transaction.max.timeout.ms, if nobody changed it
_LOOK_AGAIN_S = 0.2
_PATIENCE_S = 5.0  # for the topic's id, while a transaction is open
_NO_TOPIC = ""
COMMITTED, ALL = "read_committed", "read_uncommitted"


def transaction_options(context: Any, timeout_s: float) -> dict[str, Any]:
    """The options of a producer whose transactional id is the task's: a later try ends what an earlier one began.

    No id of a DAG, task or run has a slash, so no two tasks have one id. Another Airflow may have the same names.
    """
    ti = context["ti"]
    limit_ms = _limit_ms(timeout_s)
    prefix = conf.get(CONFIG_SECTION, "transactional_id_prefix", fallback="") or "logyard-"
    return {
        "message.timeout.ms": limit_ms,
        "transaction.timeout.ms": limit_ms,
        "transactional.id": f"{prefix}{ti.dag_id}/{ti.task_id}/{ti.run_id}/{ti.map_index}",
    }


def _limit_ms(timeout_s: float) -> int:
    return min(round(timeout_s * 1000), _TRANSACTION_MS_MAX)


class TransactionOutcome:
    """The outcome of one try's transaction on a topic, by the rules above. A result has "records" and "offsets":
    partition → {"start", "end"}, the offset of its first record and that after its last."""

    def __init__(self, context: Context, hook: RecordsHook, topic: str, timeout_s: float, log: Any) -> None:
        self._store, self._ti = context.get("task_state_store"), context["ti"]
        self._hook, self._topic, self._timeout_s, self._log = hook, topic, timeout_s, log
        self._where = f"{hook.logyard_conn_id}/{topic}"
        self._topic_id: str | None = None  # None: topics have no ids, or nobody told it
        self._try, self._began = uuid4().hex, time.monotonic()

    def start(self, producer: Any) -> Result | None:
        """Fence earlier tries; returns the result of one that has committed, None if none has.

        Raises ApiError, RecordsFailed, ClusterUnreachable; BadSettings where it cannot be told.
        """
        if self._store is not None:
            self._store.set(_STORED_TRY, self._try)
        self._began = time.monotonic()
        asked("transaction", producer.init_transactions, self._timeout_s)
        self._where = f"{cluster_of(producer, self._topic, self._timeout_s)}/{self._where}"
        if self._store is None:
            if self._ti.try_number > 1:
                text = "Airflow keeps state between tries since 3.3: a commit that was not answered is repeated"
                self._log.warning(text)
            return None
        kept = self._kept()
        earlier_id = None if kept is None else kept.get("topic_id")
        now = self._topic_now(certain=earlier_id is not None)
        self._topic_id = now or None
        if kept is None:
            return None
        if None not in (earlier_id, now) and earlier_id != now:
            self._log.info("topic %s was made anew since an earlier try: the records are written again", self._topic)
            return None
        result: Result = kept["result"]
        if not kept["is_known"] and not (result["records"] > 0 and self._is_committed(result)):
            return None
        self._log.info("an earlier try has committed %d records: nothing is written again", result["records"])
        self._keep(result, is_known=True)
        return result

    def why_fenced(self) -> str:
        """Why the brokers take nothing more from this try's producer, and what helps."""
        limit_s = _limit_ms(self._timeout_s) / 1000
        if time.monotonic() - self._began >= limit_s:
            return (
                f"topic {self._topic}: the transaction ran out of time, and nobody sees its records: {limit_s:.0f} s "
                "(wait_timeout_s, at most 15 minutes)"
            )
        another = "another Airflow with the same DAGs: give each its own [logyard] transactional_id_prefix"
        try:
            last = None if self._store is None else self._store.get(_STORED_TRY)
        except Exception:  # Airflow's: it tells a try that is over nothing
            last = None
        if last is None:
            return f"topic {self._topic}: its transaction was taken over by a later try of this task, or by {another}"
        if last != self._try:
            return f"topic {self._topic}: a later try of this task has begun, and ended this one's transaction"
        return (
            f"topic {self._topic}: a producer that is no try of this task has its transactional id, and ended its "
            f"transaction. It may be of {another}"
        )

    def _kept(self) -> dict[str, Any] | None:
        """What an earlier try kept, unless it says nothing of what this one is to do."""
        kept: Any = None if self._store is None else self._store.get(_STORED)
        if not isinstance(kept, dict) or kept["where"] != self._where:  # the task writes somewhere else since
            return None
        was_cleared = kept["max_tries"] != self._ti.max_tries  # since then, to do again what is known to be done
        return None if kept["is_known"] and was_cleared else kept

    def _topic_now(self, *, certain: bool = False) -> str | None:
        """The topic's id as the controller's broker knows it; None where topics have none, or where nobody tells it.

        `certain`: that nobody tells it raises ApiError, ClusterUnreachable.
        """
        try:
            with self._hook.client(None if certain else _PATIENCE_S) as client:
                seen = client.witnessed([self._topic])
        except (ApiError, ClusterUnreachable):
            if certain:
                raise
            return None
        found = seen.topics.get(self._topic)
        if found is None:
            return _NO_TOPIC if self._topic in seen.missing else None
        return found.topic_id

    def keep(self, result: Result) -> None:
        """Note what is about to be committed; a try that cannot must not commit.

        Raises RecordsFailed where the topic is another one than at the start: some of the records may be gone with it.
        """
        if self._store is not None:
            now = self._topic_now()
            if None not in (now, self._topic_id) and now != self._topic_id:
                raise RecordsFailed(f"topic {self._topic}: it was deleted while it was written")
            self._topic_id = self._topic_id or now
        self._keep(result, is_known=False)

    def known(self, result: Result) -> None:
        """Note that it is committed."""
        self._keep(result, is_known=True)

    def _keep(self, result: Result, *, is_known: bool) -> None:
        if self._store is not None:
            kept: Any = {"result": result, "where": self._where, "topic_id": self._topic_id}
            self._store.set(_STORED, {**kept, "is_known": is_known, "max_tries": self._ti.max_tries})

    def _is_committed(self, result: Result) -> bool:
        """Raises BadSettings where the records are gone."""
        for partition, found in result["offsets"].items():
            last = library().TopicPartition(self._topic, int(partition), found["end"] - 1)
            if self._end(last, ALL) <= last.offset:
                continue
            self._await_stable(last)
            if self._shows(last, COMMITTED):
                return True
            if self._shows(last, ALL):
                return False
        raise BadSettings(
            f"topic {self._topic}: an earlier try's commit was not answered, and its records are gone, so it is not "
            "known whether it was committed; start another run to write them again"
        )

    def _end(self, at: Any, isolation: str) -> int:
        with closing(self._hook.consumer("logyard", {"isolation.level": isolation})) as consumer:
            _, end = asked("offsets", consumer.get_watermark_offsets, at, timeout=self._timeout_s)
        return int(end)

    def _await_stable(self, at: Any) -> None:
        """Wait for other transactions that are open below: nobody sees committed records behind them."""
        deadline = time.monotonic() + self._timeout_s
        while self._end(at, COMMITTED) <= at.offset:
            if time.monotonic() >= deadline:
                raise RecordsFailed(
                    f"{at.topic}-{at.partition}: another transaction is open below offset {at.offset}, so nobody sees "
                    "whether an earlier try has committed"
                )
            time.sleep(_LOOK_AGAIN_S)

    def _shows(self, wanted: Any, isolation: str) -> bool:
        """Whether a reader sees the record at that offset."""
        with closing(self._hook.consumer("logyard", {"isolation.level": isolation})) as consumer:
            asked("records", consumer.assign, [wanted])
            deadline = time.monotonic() + self._timeout_s
            while time.monotonic() < deadline:
                for message in asked("records", consumer.consume, 1, timeout=1.0):
                    return self._is(message, wanted)
        raise RecordsFailed(f"topic {self._topic}: no broker tells whether an earlier try has committed")

    def _is(self, message: Any, wanted: Any) -> bool:
        error = message.error()
        if error is None:
            return bool(message.offset() == wanted.offset)
        if error.name() in ("_PARTITION_EOF", "_AUTO_OFFSET_RESET"):  # nothing from there on, or not even that offset
            return False
        raise refusal(f"whether an earlier try has committed, topic {self._topic}", error)
