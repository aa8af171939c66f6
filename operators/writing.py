"""Records handed to the brokers, and what they have acknowledged; librdkafka's side of producing.py and copying.py."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from airflow.sdk import Context

from logyard.admin.errors import ApiError, LogyardError
from logyard.operators.hooks.records import ProducerFenced, RecordsFailed, RecordsHook, asked, refusal
from logyard.operators.topics import TopicOperator
from logyard.operators.transaction_outcomes import TransactionOutcome

_FULL_QUEUE_S = 0.2
# So long a task whose `execution_timeout` has passed waits for the abort, where brokers do not answer.
_ABORT_S = 10.0


def timestamp_of(milliseconds: int) -> int:
    """The argument `timestamp` of `Producer.produce` for a time in ms since 1970. librdkafka takes 0 for "now", so the
    first moment of 1970 becomes the one after it."""
    return milliseconds or 1


class Ended(LogyardError):
    """Airflow ends the task; what it was writing in a transaction is aborted."""


class Writer:
    """Writes to one topic by a producer of RecordsHook. `delivered`: what is acknowledged so far."""

    def __init__(self, producer: Any, topic: str, timeout_s: float, log: Any) -> None:
        self.delivered = Delivered(topic)
        self._producer, self._topic, self._timeout_s, self._log = producer, topic, timeout_s, log
        self._what = f"topic {topic}"
        self._sent = 0
        self._is_open = False  # a transaction, which is neither committed nor aborted yet
        self._has_to_end = False

    def end(self) -> None:
        """End an open transaction, whose records hold up who reads committed ones until it times out.

        For `on_kill`, which Airflow calls by a signal's handler: the task goes on where it is, and is killed 5 s later.
        So this raises Ended, there and at the next record, unless there is nothing to end.
        """
        self._has_to_end = True
        if self._is_open:
            raise self._ended()

    def _ended(self) -> Ended:
        return Ended(f"topic {self._topic}: the task was ended")

    def write(self, records: Iterable[dict[str, Any]]) -> None:
        """Send records (arguments of `Producer.produce`), and wait for all. Raises ApiError, RecordsFailed."""
        for record in records:
            self._send(record)
        deadline = time.monotonic() + self._timeout_s + 1
        while asked(self._what, self._producer.flush, 1.0) and time.monotonic() < deadline:
            self.delivered.check()
        self.delivered.check_all(self._sent)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits at the end of the block, aborts where it raises. The producer has its transactional id already.

        Raises ApiError, RecordsFailed.
        """
        asked("transaction", self._producer.begin_transaction)
        try:
            self._is_open = True
            yield
            self._is_open = False
        except BaseException as reason:
            self._is_open = False
            patience_s = self._timeout_s if isinstance(reason, Exception) else min(self._timeout_s, _ABORT_S)
            try:
                asked("transaction", self._producer.abort_transaction, patience_s)
            except ProducerFenced as problem:
                if isinstance(reason, (ApiError, RecordsFailed)):  # it is what the failure of the records comes from
                    raise problem from None
            except LogyardError as problem:
                self._log.warning("%s; the brokers end it after its time-out", problem)
            raise
        asked("transaction", self._producer.commit_transaction, self._timeout_s)

    def _send(self, record: dict[str, Any]) -> None:
        if self._has_to_end:
            raise self._ended()
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                asked(self._what, self._producer.produce, self._topic, on_delivery=self.delivered.add, **record)
                break
            except BufferError:  # librdkafka's queue is full
                if time.monotonic() >= deadline:
                    raise RecordsFailed(f"topic {self._topic}: the brokers take no records") from None
                asked(self._what, self._producer.poll, _FULL_QUEUE_S)
                self.delivered.check()
        self._sent += 1
        asked(self._what, self._producer.poll, 0)
        self.delivered.check()


def counted(topic: str, records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What `Delivered.as_json` would say of these records, none of which is written: of any number of them."""
    number = total = 0
    for one in records:
        number += 1
        total += len(one["key"] or b"") + len(one["value"] or b"")
    return {**Delivered(topic).as_json(), "records": number, "bytes": total}


class EndsItsTransaction(TopicOperator):
    """An operator whose transaction ends with its task, also where Airflow kills that. `writer`: while it writes."""

    writer: Writer | None = None

    @contextmanager
    def writing(self, producer: Any, topic: str, *, transactional: bool) -> Iterator[Writer]:
        """A writer for the block, which is a transaction if that is asked for. Raises ApiError, RecordsFailed."""
        self.writer = writer = Writer(producer, topic, self.wait_timeout_s, self.log)
        try:
            with writer.transaction() if transactional else nullcontext():
                yield writer
        finally:
            self.writer = None

    def write_once(
        self,
        context: Context,
        hook: RecordsHook,
        producer: Any,
        topic: str,
        write: Callable[[Writer], dict[str, Any]],
    ) -> dict[str, Any]:
        """Have the task's result written in one transaction, once, also where a try does not learn of its commit.

        Returns what `write` does, in this try or an earlier one. Raises ApiError, RecordsFailed; BadSettings where it
        cannot be told whether an earlier one has committed.
        """
        outcome = TransactionOutcome(context, hook, topic, self.wait_timeout_s, self.log)
        try:
            earlier = outcome.start(producer)
            if earlier is not None:
                return earlier
            with self.writing(producer, topic, transactional=True) as writer:
                result = write(writer)
                outcome.keep(result)
        except ProducerFenced:
            raise ProducerFenced(outcome.why_fenced()) from None
        outcome.known(result)
        return result

    def on_kill(self) -> None:
        if self.writer is not None:
            self.writer.end()


class Delivered:
    """What the brokers have acknowledged, and the first refusal."""

    def __init__(self, topic: str) -> None:
        self.records = 0
        self._topic, self._bytes = topic, 0
        self._error: Any = None
        self._offsets: dict[int, tuple[int, int]] = {}

    def add(self, error: Any, message: Any) -> None:
        """librdkafka's callback for one record."""
        if error is not None:
            self._error = self._error or error
            return
        self.records += 1
        self._bytes += len(message.key() or b"") + len(message.value() or b"")
        offset, partition = message.offset(), message.partition()
        start, end = self._offsets.get(partition, (offset, offset + 1))
        self._offsets[partition] = (min(start, offset), max(end, offset + 1))

    def check(self) -> None:
        """Raise the first refusal: ApiError, RecordsFailed."""
        if self._error is not None:
            raise refusal(f"topic {self._topic}", self._error)

    def check_all(self, sent: int) -> None:
        """Raise the first refusal, or RecordsFailed if fewer than `sent` are acknowledged."""
        self.check()
        if self.records != sent:
            raise RecordsFailed(f"topic {self._topic}: {sent - self.records} of {sent} records are not acknowledged")

    def as_json(self) -> dict[str, Any]:
        """{"topic", "records", "bytes", "offsets": partition → {"start", "end"}}."""
        offsets = {str(p): {"start": start, "end": end} for p, (start, end) in sorted(self._offsets.items())}
        return {"topic": self._topic, "records": self.records, "bytes": self._bytes, "offsets": offsets}
