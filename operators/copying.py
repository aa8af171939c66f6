"""Records of one topic copied into another, of the same cluster or of another one; such as those that are to be tried
again."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from airflow.sdk import Context

from logyard.admin.settings import BadSettings
from logyard.operators import lineages, outcomes, written_topics
from logyard.operators.airflow_names import conf
from logyard.operators.contents.masks import Rule, bared, fields_of, read_rules, shown_to_all
from logyard.operators.contents.shown import Search
from logyard.operators.fields import as_integer, as_list, as_truth
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.operators.hooks.records import RecordsHook, cluster_of, headers_of, partitions_of
from logyard.operators.reading import REQUEST_S
from logyard.operators.selecting import EARLIEST, LATEST, Selecting, Selection
from logyard.operators.topic_ids import partitions_told
from logyard.operators.transaction_outcomes import transaction_options
from logyard.operators.writing import EndsItsTransaction, Writer, counted, timestamp_of

# What a worker's memory holds of the records on their way, however large each of them is.
_CONSUMER = {"queued.max.messages.kbytes": 1024, "queued.min.messages": 1000}
_PRODUCER = {"queue.buffering.max.kbytes": 64 * 1024, "message.max.bytes": 512 * 1024 * 1024}
_NO_TIMESTAMP = 0


class CopyRecordsOperator(EndsItsTransaction):
    """Write records of a topic into another topic, with their keys, values, headers and times.

    Returns {"topic", "to_topic", "to_cluster": the other connection or None, "records", "bytes", "looked_at",
    "offsets": partition of `to_topic` → {"start", "end"}, "read": partition of `topic` → {"start", "end"}, "dry_run"}.
    It reads up to the ends of now, without the records of open and aborted transactions. Where `[logyard]
    page_record_masks` hides fields of `topic`, they must be hidden in `to_topic` too, from the same readers; and
    records that `[logyard] page_records` does not show to everybody go into no cluster whose records it shows: else the
    task is refused.

    :param topic: the topic to read. (templated)
    :param to_topic: the topic to write, which exists. (templated)
    :param to_logyard_conn_id: the connection of the cluster to write to; empty: the same. (templated)
    :param partitions: of `topic`; empty: all. (templated)
    :param start: `earliest`, `newest`, an offset, or a time in ISO 8601 (the first record then or later). (templated)
    :param end: `latest`, an offset or a time, without the record there. (templated)
    :param limit: at most so many records: of `start="newest"` the newest, else the first by their times. (templated)
    :param key: only records whose key contains it, as the page shows keys. (templated)
    :param text: only those whose key, value or a header contains it. (templated)
    :param keep_partitions: write each record into the partition of the same number; else keys decide. (templated)
    :param transactional: write in one transaction, once: a try that fails leaves nothing that `read_committed` readers
        see. Else the next try writes everything again. The login needs Write on transactional ids `logyard-…`, and Read
        on `to_topic` to look what became of a commit that was not answered. (templated)
    """

    tells = staticmethod(outcomes.copied)
    writes = staticmethod(written_topics.copied)
    lineage = staticmethod(lineages.copied)
    template_fields = (
        *EndsItsTransaction.template_fields,
        *("to_topic", "to_logyard_conn_id", "partitions", "start", "end", "limit", "key", "text"),
        *("keep_partitions", "transactional"),
    )

    def __init__(
        self,
        *,
        to_topic: str,
        to_logyard_conn_id: str | None = None,
        partitions: Sequence[int] | str | None = None,
        start: str | int = EARLIEST,
        end: str | int = LATEST,
        limit: int | str | None = None,
        key: str | None = None,
        text: str | None = None,
        keep_partitions: bool | str = False,
        transactional: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.to_topic = to_topic
        self.to_logyard_conn_id = to_logyard_conn_id
        self.partitions = partitions
        self.start = start
        self.end = end
        self.limit = limit
        self.key = key
        self.text = text
        self.keep_partitions = keep_partitions
        self.transactional = transactional

    def execute(self, context: Context) -> dict[str, Any]:
        selection = self._selection()
        rules = read_rules(conf.get(CONFIG_SECTION, "page_record_masks", fallback="") or "")
        self._check_readers(rules)
        hook, target = RecordsHook(self.logyard_conn_id), RecordsHook(self.written_conn_id)
        with closing(hook.consumer("logyard", _CONSUMER)) as consumer:
            partitions = self._partitions(consumer, target)
            # What is hidden from anybody is not searched: the number that are found would tell it.
            hidden = fields_of(rules, self.topic, ())
            told = partitions_told(hook, self.topic, self.log.warning)
            selecting = Selecting(consumer, selection, hidden, self.wait_timeout_s, told)
            keeps = self._keeps(selecting, partitions)
            records = (as_written(message, keep_partition=keeps) for message in selecting.records())
            if self.checks_only:
                return self._result(selecting, counted(self.to_topic, records))

            def write(writer: Writer) -> dict[str, Any]:
                writer.write(records)
                return self._result(selecting, writer.delivered.as_json())

            return self._written(target, context, write)

    def _result(self, selecting: Selecting, done: dict[str, Any]) -> dict[str, Any]:
        return {
            **done,
            "topic": self.topic,
            "to_topic": self.to_topic,
            "to_cluster": self.written_conn_id if self.written_conn_id != self.logyard_conn_id else None,
            "looked_at": selecting.looked_at,
            "read": {str(p): {"start": start, "end": end} for (_, p), (start, end) in sorted(selecting.bounds.items())},
            "dry_run": self.checks_only,
        }

    @property
    def written_conn_id(self) -> str:
        """The connection that is written to; what a template makes of a field that was left empty is empty too."""
        named = str(self.to_logyard_conn_id or "").strip()
        return self.logyard_conn_id if named in ("", "None") else named

    def _check_readers(self, rules: Sequence[Rule]) -> None:
        """Raises BadSettings where the copy would be read by who may not read the records."""
        if shown := bared(rules, self.topic, self.to_topic):
            raise BadSettings(
                f"{', '.join(shown)}: hidden in {self.topic} by [logyard] page_record_masks, and not in "
                f"{self.to_topic} from the same readers: add a rule for it"
            )
        open_to_all, there = conf.get(CONFIG_SECTION, "page_records", fallback="") or "", self.written_conn_id
        if shown_to_all(open_to_all, there) and not shown_to_all(open_to_all, self.logyard_conn_id):
            raise BadSettings(
                f"[logyard] page_records shows the records of {there} to every user of the page, and not those of "
                f"{self.logyard_conn_id}: a copy would show them"
            )

    def _partitions(self, consumer: Any, target: RecordsHook) -> int:
        """The number of partitions of the topic to write. Raises BadSettings where that is the topic itself, by another
        connection to its cluster; ApiError, RecordsFailed."""
        if self.written_conn_id == self.logyard_conn_id:
            return len(partitions_of(consumer, [self.to_topic], REQUEST_S))
        with closing(target.consumer("logyard", _CONSUMER)) as other:
            found = len(partitions_of(other, [self.to_topic], REQUEST_S))
            clusters = {cluster_of(one, self.topic, REQUEST_S) for one in (consumer, other)}
            if self.topic == self.to_topic and len(clusters) == 1:
                raise BadSettings(
                    f"topic {self.topic} would be copied into itself: both connections lead to one cluster"
                )
        return found

    def _selection(self) -> Selection:
        """Raises BadSettings."""
        if self.topic == self.to_topic and self.written_conn_id == self.logyard_conn_id:
            raise BadSettings(f"topic {self.topic} would be copied into itself: name another topic")
        limit = as_integer("limit", self.limit, 0)
        return Selection(
            self.topic,
            tuple(sorted({as_integer("partitions", one, -1) for one in as_list("partitions", self.partitions)})),
            str(self.start),
            str(self.end),
            limit if limit or self.limit in (0, "0") else None,
            Search.of(self.key or "", self.text or ""),
        )

    def _keeps(self, selecting: Selecting, partitions: int) -> bool:
        """Whether partitions are kept. Raises BadSettings where they are not there."""
        keeps = as_truth("keep_partitions", self.keep_partitions)
        last = max((partition for _, partition in selecting.bounds), default=-1)
        if keeps and last >= partitions:
            raise BadSettings(f"topic {self.to_topic} has no partition {last}: it has {partitions}")
        return keeps

    def _written(
        self, hook: RecordsHook, context: Context, write: Callable[[Writer], dict[str, Any]]
    ) -> dict[str, Any]:
        options: dict[str, Any] = {**_PRODUCER, "message.timeout.ms": round(self.wait_timeout_s * 1000)}
        if as_truth("transactional", self.transactional):
            producer = hook.producer(options | transaction_options(context, self.wait_timeout_s))
            return self.write_once(context, hook, producer, self.to_topic, write)
        with self.writing(hook.producer(options), self.to_topic, transactional=False) as writer:
            try:
                return write(writer)
            except BaseException:
                if writer.delivered.records:
                    self.log.error("at least %d records were copied before it failed", writer.delivered.records)
                raise


def as_written(message: Any, *, keep_partition: bool) -> dict[str, Any]:
    """The arguments of `Producer.produce` for a copy of the message."""
    made: dict[str, Any] = {"key": message.key(), "value": message.value(), "headers": headers_of(message)}
    kind, stamp = message.timestamp()
    if kind != _NO_TIMESTAMP:
        made["timestamp"] = timestamp_of(stamp)
    if keep_partition:
        made["partition"] = message.partition()
    return made
