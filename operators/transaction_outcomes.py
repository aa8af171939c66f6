"""What became of a task's transaction whose commit was not answered: kept in Airflow between tries, looked up in Kafka.

    before the commit   the result is kept, as one that is not known to be committed
    after its answer    it is known
    the next try        ends what earlier tries left open; then nobody but itself can commit. Not known: it looks
                        whether who reads committed records sees the last one. Then nothing is written again

A connection that leads to another cluster since says nothing of it: there the task writes.
A task that is cleared after it has succeeded writes again. Airflow keeps state between tries since 3.3.
"""

import time
from contextlib import closing
from typing import Any

from airflow.sdk import Context

from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import conf
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.operators.hooks.records import RecordsFailed, RecordsHook, asked, cluster_of, library, refusal

Result = dict[str, Any]

_STORED = "logyard_transaction"
_TRANSACTION_MS_MAX = 900_000  # the brokers' transaction.max.timeout.ms, if nobody changed it
_LOOK_AGAIN_S = 0.2
COMMITTED, ALL = "read_committed", "read_uncommitted"


def transaction_options(context: Any, timeout_s: float) -> dict[str, Any]:
    """The options of a producer whose transactional id is the task's: a later try ends what an earlier one began.

    No id of a DAG, task or run has a slash, so no two tasks have one id. Another Airflow may have the same names.
    """
    ti = context["ti"]
    limit_ms = min(round(timeout_s * 1000), _TRANSACTION_MS_MAX)
    prefix = conf.get(CONFIG_SECTION, "transactional_id_prefix", fallback="") or "logyard-"
    return {
        "message.timeout.ms": limit_ms,
        "transaction.timeout.ms": limit_ms,
        "transactional.id": f"{prefix}{ti.dag_id}/{ti.task_id}/{ti.run_id}/{ti.map_index}",
    }


class TransactionOutcome:
    """The outcome of one try's transaction on a topic, by the rules above. A result has "records" and "offsets":
    partition → {"start", "end"}, the offset of its first record and that after its last."""

    def __init__(self, context: Context, hook: RecordsHook, topic: str, timeout_s: float, log: Any) -> None:
        self._store, self._ti = context.get("task_state_store"), context["ti"]
        self._hook, self._topic, self._timeout_s, self._log = hook, topic, timeout_s, log
        self._where = f"{hook.logyard_conn_id}/{topic}"

    def start(self, producer: Any) -> Result | None:
        """Fence earlier tries; returns the result of one that has committed, None if none has.

        Raises ApiError, RecordsFailed; BadSettings where it cannot be told.
        """
        asked("transaction", producer.init_transactions, self._timeout_s)
        self._where = f"{cluster_of(producer, self._topic, self._timeout_s)}/{self._where}"
        kept: Any = None if self._store is None else self._store.get(_STORED)
        if self._store is None and self._ti.try_number > 1:
            self._log.warning("Airflow keeps state between tries since 3.3: a commit that was not answered is repeated")
        if not isinstance(kept, dict) or kept["where"] != self._where:  # the task writes somewhere else since
            return None
        result: Result = kept["result"]
        if kept["is_known"]:
            is_done = kept["max_tries"] == self._ti.max_tries  # else the task was cleared since, to do it again
        else:
            is_done = result["records"] > 0 and self._is_committed(result)
        if not is_done:
            return None
        self._log.info("an earlier try has committed %d records: nothing is written again", result["records"])
        self._keep(result, is_known=True)
        return result

    def keep(self, result: Result) -> None:
        """Note what is about to be committed; a try that cannot must not commit."""
        self._keep(result, is_known=False)

    def known(self, result: Result) -> None:
        """Note that it is committed."""
        self._keep(result, is_known=True)

    def _keep(self, result: Result, *, is_known: bool) -> None:
        if self._store is not None:
            kept: Any = {"result": result, "where": self._where, "is_known": is_known, "max_tries": self._ti.max_tries}
            self._store.set(_STORED, kept)

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
