"""Records read from topics, and the offsets of a group committed when what follows has succeeded."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.errors import LogyardError
from logyard.admin.ports import EARLIEST, LATEST, ClusterClient
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators import lineages, outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.callables import called
from logyard.operators.client_options import TakesClientOptions
from logyard.operators.contents.formats import BYTES, Formats
from logyard.operators.contents.schemas.problems import BadRecord
from logyard.operators.fields import as_integer, as_mapping, as_names
from logyard.operators.hooks.records import RecordsFailed, RecordsHook, cluster_of, partitions_of
from logyard.operators.reading import REQUEST_S, Reading, log_of, since_commits, with_told
from logyard.operators.results import hand_over
from logyard.operators.topic_ids import Origin, refuse_made_anew, told_of

NEVER, EACH_BATCH, AT_END = "never", "end_of_batch", "end_of_operator"
FAIL, SKIP, KEEP = "fail", "skip", "keep"
# How many of those that cannot be decoded the log names.
_NAMED_MAX = 20


class ConsumeFromTopicOperator(TakesClientOptions, ClusterOperator):
    """Read a group's records, from its committed offsets to the end that the topics have at the start of the try.

    Returns {"group", "records", "records_of": topic → number, "offsets": "topic-partition" → {"start", "end"},
    "topic_ids": topic → id where CommitOffsetsOperator commits, "cluster_id", "committed", "undecoded": number,
    "results"}. Records of aborted transactions are left out. Without a commit of the group a partition is read from its
    first record. It joins no group: a group that has members must not be read by it, and refuses commits. For a topic
    that was deleted and made anew while the function ran (its id tells) it commits nothing, and fails.

    At least once: with `end_of_operator` the result is an XCom before anything is committed (as long as `do_xcom_push`
    is set), so records whose result Airflow does not take are read again. A worker that dies between the commit and the
    task's success has committed, though, and XComs do not outlive a try: the retry reads on behind the commit, and its
    result lacks what the earlier try has read, which only functions have got. Where later tasks must not miss a record,
    `never` and CommitOffsetsOperator commit when they have succeeded.

    :param topics: topics, a list or its JSON; `^…` is a regular expression. (templated)
    :param group: the group whose offsets say where to begin. (templated)
    :param apply_function: a function of one `confluent_kafka.Message`, or its dotted path.
    :param apply_function_batch: instead: a function of a list of them.
    :param apply_function_args: its first arguments. (templated)
    :param apply_function_kwargs: its keyword arguments. (templated)
    :param return_apply_function_results: put what `apply_function` returns, except None, into `results`. With
        `end_of_batch` what a try that fails has committed by then is in no result; the log warns of it.
    :param key_format: what `message.key()` gives: `bytes` as they are; `text` (UTF-8); `json`; `messagepack`;
        `registry`: what serializers of the connection's schema registry wrote (Avro, Protobuf, JSON Schema), as JSON
        has it: bytes as hexadecimal text, times and decimals as text. A null stays None. (templated)
    :param value_format: the same of `message.value()`. (templated)
    :param on_undecoded: what a record does that cannot be decoded: `fail` the task; `skip`: it is left out, counted
        and named in the log; `keep`: functions get it with its bytes.
    :param commit_cadence: `end_of_operator`, `end_of_batch`, or `never`: then CommitOffsetsOperator commits once later
        tasks have succeeded.
    :param max_messages: read at most so many records; None: to the end.
    :param max_batch_size: how many records are read at once.
    :param poll_timeout: fail when no record came for so many seconds although there are some.
    :param client_options: librdkafka's options beside the connection's. (templated)
    """

    tells = staticmethod(outcomes.consumed)
    lineage = staticmethod(lineages.consumed)
    template_fields = (
        "topics",
        "group",
        "apply_function_args",
        "apply_function_kwargs",
        "key_format",
        "value_format",
        "client_options",
        *ClusterOperator.template_fields,
    )

    def __init__(
        self,
        *,
        topics: Sequence[str] | str,
        group: str,
        apply_function: Callable[..., Any] | str | None = None,
        apply_function_batch: Callable[..., Any] | str | None = None,
        apply_function_args: Sequence[Any] | None = None,
        apply_function_kwargs: Mapping[str, Any] | None = None,
        return_apply_function_results: bool = False,
        key_format: str = BYTES,
        value_format: str = BYTES,
        on_undecoded: str = FAIL,
        commit_cadence: str = AT_END,
        max_messages: int | None = None,
        max_batch_size: int = 1000,
        poll_timeout: float = 60,
        client_options: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.group = group
        self.apply_function = apply_function
        self.apply_function_batch = apply_function_batch
        self.apply_function_args = apply_function_args or ()
        self.apply_function_kwargs = apply_function_kwargs or {}
        self.return_apply_function_results = return_apply_function_results
        self.key_format = key_format
        self.value_format = value_format
        self.on_undecoded = on_undecoded
        self.commit_cadence = commit_cadence
        self.max_messages = max_messages
        self.max_batch_size = max_batch_size
        self.poll_timeout = poll_timeout
        self.client_options = client_options

    def execute(self, context: Context) -> dict[str, Any]:
        process = self._process()
        topics = as_names("topics", self.topics)
        if not topics or not self.group:
            raise BadSettings("name at least one topic, and the group")
        if self.max_batch_size < 1:
            raise BadSettings(f"max_batch_size: expected 1 or more, found {self.max_batch_size}")
        hook = RecordsHook(self.logyard_conn_id)
        formats = hook.formats(self.key_format, self.value_format)
        try:
            options = self.options()

            def end_of(tp: Any) -> int:
                with closing(hook.consumer(self.group, {**options, "isolation.level": "read_uncommitted"})) as other:
                    return log_of(other, tp)[1]

            with closing(hook.consumer(self.group, options)) as consumer:
                heard = partitions_of(consumer, topics, REQUEST_S)
                # Asked before the offsets: those that are read are then of this topic, or of none.
                told = told_of(hook, topics, self.log.warning)
                wanted = with_told(heard, told)
                ids = {name: view.topic_id for name, view in told.items() if view.topic_id is not None}
                reading = since_commits(consumer, wanted, self.log.warning, end_of)
                cluster_id = cluster_of(consumer, wanted[0].topic, REQUEST_S) if wanted else None
                return {**self._read(context, reading, ids, formats, process), "cluster_id": cluster_id}
        finally:
            formats.close()

    def _read(
        self,
        context: Context,
        reading: Reading,
        known: Mapping[str, str],
        formats: Formats,
        process: Callable[[list[Any]], list[Any]],
    ) -> dict[str, Any]:
        undecoded = _Undecoded(self.on_undecoded, self.log.warning)
        if self.checks_only:
            return self._result(reading.ranges, {}, undecoded, [], {})
        read = {topic for topic, _ in reading.ranges}
        ids = {topic: topic_id for topic, topic_id in known.items() if topic in read}
        counts: dict[str, int] = {}
        results: list[Any] = []
        with self.hook.client() as client:  # it connects where something is to be committed
            for batch in reading.batches(self.max_batch_size, self.max_messages, self.poll_timeout):
                wanted = formats.decode(batch, undecoded)
                results += process(wanted) if wanted else []
                for message in batch:
                    counts[message.topic()] = counts.get(message.topic(), 0) + 1
                if self.commit_cadence == EACH_BATCH:
                    self._commit(client, reading, ids)
            done = {tp: (start, reading.positions[tp]) for tp, (start, _) in reading.ranges.items()}
            moved = {tp: (start, end) for tp, (start, end) in done.items() if start < end}
            found = self._result(moved, counts, undecoded, results, ids if self.commit_cadence == NEVER else {})
            if self.commit_cadence != NEVER:
                if reading.uncommitted():
                    so_far = {**found, "committed": False}
                    hand_over(self, context, so_far)
                    self.keep_outcome(context, outcomes.consumed(so_far))
                self._commit(client, reading, ids)
        return found

    def _commit(self, client: ClusterClient, reading: Reading, ids: Mapping[str, str]) -> None:
        """Commit what was read, unless a topic was made anew while the function ran. Raises TopicConflict."""
        read = {topic for topic, _ in reading.uncommitted()}
        refuse_made_anew(client, self.group, {topic: ids[topic] for topic in read & ids.keys()})
        reading.commit()

    def _process(self) -> Callable[[list[Any]], list[Any]]:
        """What is done with a batch; returns the results to keep. Raises BadSettings."""
        if self.commit_cadence not in (NEVER, EACH_BATCH, AT_END):
            raise BadSettings(f"commit_cadence {self.commit_cadence!r}: {NEVER}, {EACH_BATCH} or {AT_END} is expected")
        if self.on_undecoded not in (FAIL, SKIP, KEEP):
            raise BadSettings(f"on_undecoded {self.on_undecoded!r}: {FAIL}, {SKIP} or {KEEP} is expected")
        if self.commit_cadence == EACH_BATCH and self.return_apply_function_results:
            # Airflow's own operator takes the two together, and DAGs that move here may have them.
            self.log.warning(
                "return_apply_function_results with commit_cadence %s: if this try fails, the results of the batches "
                "that it has committed are lost; %s or %s keeps them",
                EACH_BATCH,
                AT_END,
                NEVER,
            )
        if self.apply_function is not None and self.apply_function_batch is not None:
            raise BadSettings("give apply_function or apply_function_batch, not both")
        args, kwargs = self.apply_function_args, self.apply_function_kwargs
        if self.apply_function_batch is not None:
            whole = called("apply_function_batch", self.apply_function_batch, args, kwargs)

            def process_whole(batch: list[Any]) -> list[Any]:
                whole(batch)
                return []

            return process_whole
        if self.apply_function is None:
            return lambda batch: []
        each = called("apply_function", self.apply_function, args, kwargs)

        def process(batch: list[Any]) -> list[Any]:
            made = [each(message) for message in batch]
            return [one for one in made if one is not None] if self.return_apply_function_results else []

        return process

    def _result(
        self,
        ranges: Mapping[tuple[str, int], tuple[int, int]],
        counts: Mapping[str, int],
        undecoded: "_Undecoded",
        results: list[Any],
        topic_ids: Mapping[str, str],
    ) -> dict[str, Any]:
        named = {f"{topic}-{p}": {"start": start, "end": end} for (topic, p), (start, end) in sorted(ranges.items())}
        return {
            "group": self.group,
            "records": sum(counts.values()),
            "records_of": dict(sorted(counts.items())),
            "offsets": named,
            "committed": self.commit_cadence != NEVER and not self.checks_only,
            "dry_run": self.checks_only,
            "undecoded": undecoded.number,
            "results": results,
            "topic_ids": topic_ids,
        }


class _Undecoded:
    """What is done with records that cannot be decoded, and their number."""

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self._what, self._say = what, say
        self.number = 0

    def __call__(self, problem: BadRecord) -> bool:
        """Whether functions get the record. Raises the problem."""
        if self._what == FAIL:
            raise problem
        self.number += 1
        if self.number <= _NAMED_MAX:
            self._say(f"not decoded, {'left out' if self._what == SKIP else 'left as bytes'}: {problem}")
        return self._what == KEEP


class CommitOffsetsOperator(ClusterOperator):
    """Commit a group's offsets once the tasks before it have succeeded; never back, and never over records unread.

    Returns {"group", "committed": "topic-partition" → offset, "already": those that were committed before}. If records
    before `start` are not committed, an earlier run has not finished: the task fails, and commits nothing, so that
    these records stay to be read; with `retries` it waits for that run. It commits nothing either for a topic that was
    deleted and made anew since it was read (its id tells), or whose log ends before what was read, nor where the
    connection leads to another cluster than that of the reading.

    :param group: the group. (templated)
    :param offsets: "topic-partition" → {"start", "end"}, or the whole result of ConsumeFromTopicOperator, `read.output`
        (not `read.output["offsets"]`, which for Airflow is another XCom), a mapping or its JSON. (templated)
    """

    tells = staticmethod(outcomes.committed)
    template_fields = ("group", "offsets", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"offsets": "json"}

    def __init__(self, *, group: str, offsets: Mapping[str, Any] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.offsets = offsets

    def execute(self, context: Context) -> dict[str, Any]:
        if not self.group:
            raise BadSettings("group: name the group")
        given = as_mapping("offsets", self.offsets)
        # No partition is called so: this is the result that has them.
        wanted = as_ranges(as_mapping("offsets", given["offsets"]) if "offsets" in given else given)
        ids = as_mapping("topic_ids", given.get("topic_ids")) if "offsets" in given else {}
        with self.hook.client() as client:
            read = {name: str(ids[name]) for name in {tp.topic for tp in wanted} & ids.keys()}
            Origin(str(given.get("cluster_id") or ""), read).refuse_another(client, self.group)
            before = client.group_offsets(self.group) if wanted else {}
            first = client.offsets(list(wanted), EARLIEST) if wanted else {}
            now = {tp: max(before.get(tp, 0), first.get(tp, 0)) for tp in wanted}
            gaps = [f"{tp} from {now[tp]} to {start}" for tp, (start, _) in sorted(wanted.items()) if now[tp] < start]
            if gaps:
                raise Unfinished(f"group {self.group}: an earlier run has not committed yet: {', '.join(gaps)}")
            todo = {tp: end for tp, (_, end) in wanted.items() if now[tp] < end}
            self._refuse_short(client, todo)
            if todo and not self.checks_only:
                client.alter_group_offsets(self.group, todo)
        return {
            "group": self.group,
            "committed": {str(tp): end for tp, end in sorted(todo.items())},
            "already": {str(tp): now[tp] for tp in sorted(wanted.keys() - todo.keys())},
            "dry_run": self.checks_only,
        }

    def _refuse_short(self, client: ClusterClient, todo: Mapping[TopicPartition, int]) -> None:
        """Raise RecordsFailed where a log ends before what was read: what is written now would never be read."""
        last = client.offsets(list(todo), LATEST) if todo else {}
        for tp, end in sorted(todo.items()):
            if last[tp] < end:
                raise RecordsFailed(
                    f"group {self.group}: {tp} was read up to {end}, and ends at {last[tp]}: it lost records, or the "
                    "topic was made anew. Nothing is committed; right after a change of the leader, try again"
                )


class Unfinished(LogyardError):
    """Earlier records of the group are not committed yet; a later try may find them committed."""


def as_ranges(offsets: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, int]]:
    """`topic-partition` → {"start", "end"} as offsets from, to. Raises BadSettings."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for name, one in offsets.items():
        topic, _, partition = str(name).rpartition("-")
        if not topic or not partition.isdecimal() or not isinstance(one, Mapping):
            raise BadSettings(f'offsets {name!r}: "topic-partition" → {{"start", "end"}} is expected')
        start, end = as_integer("start", one.get("start"), -1), as_integer("end", one.get("end"), -1)
        if not 0 <= start <= end:
            raise BadSettings(f"offsets {name!r}: start {start} and end {end} are no range")
        found[TopicPartition(topic, int(partition))] = (start, end)
    return found
