"""A task's transaction is committed once, whatever its tries learn of it; no other task has its transactional id."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk.exceptions import AirflowTaskTimeout
from confluent_kafka import KafkaError, KafkaException

from logyard.admin.cluster.snapshot import ClusterSnapshot, TopicView
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.settings import BadSettings
from logyard.operators.hooks.records import ProducerFenced, RecordsFailed
from logyard.operators.producing import ProduceToTopicOperator
from logyard.operators.transaction_outcomes import ALL, COMMITTED, transaction_options
from logyard.operators.writing import Writer
from tests.support.airflow_tasks import Store, context

pytestmark = pytest.mark.airflow

TIMED_OUT, PARTITION_EOF, FENCED, PURGED = -185, -191, -144, -152  # librdkafka's own: their names are private in Python
RESULT: dict[str, Any] = {"records": 3, "offsets": {"0": {"start": 5, "end": 8}}}


class Log:
    """A partition as a consumer sees it: by isolation, where it ends and which of its records there are.

    `ids`: of its topic, as they are told one after the other, the last one from then on; "": it does not exist, None:
    nobody tells.
    """

    logyard_conn_id, topic = "west", "t"

    def __init__(
        self,
        ends: Mapping[str, int],
        seen: Mapping[str, set[int]],
        error: int | None = None,
        ids: Sequence[str | None] = ("an id",),
    ) -> None:
        self.ends, self.seen, self.error, self.ids = ends, seen, error, list(ids)

    def of(self, *ids: str | None) -> "Log":
        return Log(self.ends, self.seen, self.error, ids)

    @contextmanager
    def client(self, patience_s: float | None = None) -> Iterator[Any]:
        yield self

    def witnessed(self, topics: Sequence[str]) -> ClusterSnapshot:
        found = self.ids.pop(0) if len(self.ids) > 1 else self.ids[0]
        if found is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        there = {topic: TopicView(topic, (), topic_id=found) for topic in topics if found}
        return ClusterSnapshot("one", 1, {}, there, missing=() if found else tuple(topics))

    def consumer(self, group: str, options: Mapping[str, Any]) -> Any:
        isolation = options["isolation.level"]
        at: list[Any] = []

        def consume(count: int, timeout: float) -> list[Any]:
            after = [offset for offset in sorted(self.seen[isolation]) if offset >= at[0].offset]
            code = self.error or (None if after else PARTITION_EOF)
            error = None if code is None else KafkaError(code)
            return [SimpleNamespace(error=lambda: error, offset=lambda: after[0])]

        return SimpleNamespace(
            assign=at.extend,
            consume=consume,
            get_watermark_offsets=lambda *_, **__: (0, self.ends[isolation]),
            close=int,
        )


NOTHING = Log({COMMITTED: 0, ALL: 0}, {COMMITTED: set(), ALL: set()})
WRITTEN = Log({COMMITTED: 9, ALL: 9}, {COMMITTED: {5, 6, 7}, ALL: {5, 6, 7}})
ABORTED = Log({COMMITTED: 20, ALL: 20}, {COMMITTED: {12}, ALL: {5, 6, 7, 12}})
AT_THE_END = Log({COMMITTED: 9, ALL: 9}, {COMMITTED: set(), ALL: {5, 6, 7}})
COMPACTED = Log({COMMITTED: 20, ALL: 20}, {COMMITTED: {12}, ALL: {12}})
HELD_UP = Log({COMMITTED: 3, ALL: 20}, {COMMITTED: set(), ALL: {5, 6, 7}})


class Client:
    """A producer; its commit does what it is told to."""

    def __init__(self, commit: Callable[[], None] = lambda: None, cluster: str = "one") -> None:
        self.asked: list[str] = []
        self._commit, self._cluster = commit, cluster

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(cluster_id=self._cluster)

    def __getattr__(self, name: str) -> Any:
        def ask(*_: Any) -> None:
            self.asked.append(name)
            if name == "commit_transaction":
                self._commit()

        return ask


def unanswered() -> None:
    raise KafkaException(KafkaError(TIMED_OUT))


def attempt(
    store: Store | None, log: Log, commit: Callable[[], None] = lambda: None, cluster: str = "one", **ti: Any
) -> tuple[Any, Client]:
    """One try of a task: its result or its error, and what its producer was asked for."""
    operator = ProduceToTopicOperator(task_id="p", topic="t", records=[], wait_timeout_s=0.3)
    made = context(store)
    made["task_state_store"] = store
    vars(made["ti"]).update(ti)
    client = Client(commit, cluster)
    try:
        return operator.write_once(made, log, client, log.topic, lambda _: dict(RESULT)), client  # type: ignore[arg-type]
    except (ApiError, BadSettings, RecordsFailed) as problem:
        return problem, client


def fenced() -> None:
    raise KafkaException(KafkaError(FENCED))


def has_written(client: Client) -> bool:
    return "commit_transaction" in client.asked


def test_a_try_whose_commit_was_answered_is_not_repeated() -> None:
    store = Store()
    assert attempt(store, NOTHING)[0] == RESULT
    found, client = attempt(store, NOTHING, try_number=2)
    assert (found, client.asked) == (RESULT, ["init_transactions"])


@pytest.mark.parametrize("max_tries", [0, 3])
def test_a_commit_without_an_answer_is_looked_up(max_tries: int) -> None:
    """By a retry, and by a try of the task after it was cleared."""
    store = Store()
    assert isinstance(attempt(store, NOTHING, unanswered)[0], RecordsFailed)
    found, client = attempt(store, WRITTEN, max_tries=max_tries)
    assert (found, client.asked) == (RESULT, ["init_transactions"])
    assert attempt(store, NOTHING, max_tries=max_tries)[1].asked == ["init_transactions"], "it is known from then on"


def test_a_commit_in_another_cluster_is_none_in_this_one() -> None:
    """The connection leads to another one since, which has records of others at those offsets."""
    store = Store()
    assert isinstance(attempt(store, NOTHING, unanswered)[0], RecordsFailed)
    found, client = attempt(store, WRITTEN, cluster="another")
    assert found == RESULT
    assert has_written(client)
    assert not has_written(attempt(store, NOTHING, cluster="another")[1])


def test_a_commit_in_an_earlier_topic_of_the_name_is_none_in_this_one() -> None:
    """The topic was deleted and made anew since, and has records of others at those offsets."""
    store = Store()
    assert isinstance(attempt(store, NOTHING, unanswered)[0], RecordsFailed)
    found, client = attempt(store, WRITTEN.of(None), unanswered)
    assert isinstance(found, ApiError)
    assert not has_written(client), "a retry has to be certain"
    found, client = attempt(store, WRITTEN.of("another id"))
    assert found == RESULT
    assert has_written(client)
    assert not has_written(attempt(store, NOTHING.of("another id"), try_number=2)[1])
    assert has_written(attempt(store, NOTHING.of("a third"), try_number=3)[1]), "what was known to be committed is gone"


@pytest.mark.parametrize("ids", [("an id", "another id"), ("an id", "")])
def test_a_topic_that_is_deleted_while_it_is_written_has_not_all_of_the_records(ids: tuple[str, ...]) -> None:
    store = Store()
    found, client = attempt(store, NOTHING.of(*ids))
    assert isinstance(found, RecordsFailed)
    assert client.asked[-1] == "abort_transaction"
    assert has_written(attempt(store, NOTHING.of("another id"))[1])


def test_where_nobody_tells_the_topics_id_records_are_written_and_looked_up_all_the_same() -> None:
    store = Store()
    assert isinstance(attempt(store, NOTHING.of(None), unanswered)[0], RecordsFailed)
    found, client = attempt(store, WRITTEN)
    assert (found, has_written(client)) == (RESULT, False)
    store = Store()
    attempt(store, NOTHING.of("an id", None), unanswered)
    assert has_written(attempt(store, WRITTEN.of("another id"))[1])


@pytest.mark.parametrize("log", [ABORTED, AT_THE_END])
def test_what_was_aborted_is_written_again(log: Log) -> None:
    store = Store()
    attempt(store, NOTHING, unanswered)
    found, client = attempt(store, log)
    assert found == RESULT
    assert has_written(client)


@pytest.mark.parametrize("log", [COMPACTED, NOTHING])
def test_what_cannot_be_told_is_refused(log: Log) -> None:
    store = Store()
    attempt(store, NOTHING, unanswered)
    found, client = attempt(store, log)
    assert isinstance(found, BadSettings)
    assert "its records are gone" in str(found)
    assert not has_written(client)


def test_another_open_transaction_is_waited_for() -> None:
    store = Store()
    attempt(store, NOTHING, unanswered)
    found, client = attempt(store, HELD_UP)
    assert isinstance(found, RecordsFailed)
    assert "open below offset 7" in str(found)
    assert not has_written(client)


def test_without_the_right_to_read_nothing_is_written_again() -> None:
    store = Store()
    attempt(store, NOTHING, unanswered)
    refused = Log(WRITTEN.ends, WRITTEN.seen, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    found, client = attempt(store, refused)
    assert isinstance(found, ApiError)
    assert found.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not has_written(client)


def test_a_task_that_is_cleared_after_its_success_writes_again() -> None:
    store = Store()
    attempt(store, NOTHING)
    assert has_written(attempt(store, WRITTEN, try_number=2, max_tries=1)[1])


@pytest.mark.parametrize(("attribute", "value"), [("logyard_conn_id", "east"), ("topic", "other")])
def test_a_task_that_writes_somewhere_else_since_writes(attribute: str, value: str) -> None:
    store = Store()
    attempt(store, NOTHING, unanswered)
    elsewhere = Log(WRITTEN.ends, WRITTEN.seen)
    setattr(elsewhere, attribute, value)
    assert has_written(attempt(store, elsewhere)[1])


def test_what_cannot_be_kept_is_not_committed() -> None:
    class Broken(Store):
        def set(self, key: str, value: Any) -> None:
            if key == "logyard_transaction":
                raise RecordsFailed("Airflow does not answer")
            super().set(key, value)

    found, client = attempt(Broken(), NOTHING)
    assert isinstance(found, RecordsFailed)
    assert client.asked[-1] == "abort_transaction"


def test_an_abort_that_nobody_answers_does_not_hold_up_a_task_whose_time_is_over() -> None:
    """It took `wait_timeout_s`, ten minutes; the brokers, or the next try, end the transaction as well."""

    def ends(_: Any) -> Any:
        raise AirflowTaskTimeout("execution_timeout")

    waits: list[float] = []
    client: Any = Client()
    client.abort_transaction = waits.append
    log: Any = NOTHING
    with pytest.raises(AirflowTaskTimeout):
        ProduceToTopicOperator(task_id="p", topic="t").write_once(context(), log, client, "t", ends)
    assert len(waits) == 1
    assert waits[0] <= 15


def test_an_airflow_that_keeps_nothing_writes_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert has_written(attempt(None, WRITTEN, unanswered)[1])
    assert "since 3.3" not in capsys.readouterr().out
    assert has_written(attempt(None, WRITTEN, try_number=2)[1])
    assert "since 3.3" in capsys.readouterr().out


def test_a_try_that_was_ended_before_its_commit_is_repeated() -> None:
    store = Store()
    operator = ProduceToTopicOperator(task_id="p", topic="t", records=[])
    with pytest.raises(RecordsFailed):
        operator.write_once(context(store), NOTHING, Client(), "t", failing)  # type: ignore[arg-type]
    assert has_written(attempt(store, NOTHING)[1])


def test_another_airflows_producer_is_told_from_a_later_try() -> None:
    found, _ = attempt(store := Store(), NOTHING, fenced)
    assert "no try of this task" in str(found)
    assert "[logyard] transactional_id_prefix" in str(found)

    def later_try() -> None:
        attempt(store, ABORTED)
        fenced()

    found, _ = attempt(store, ABORTED, later_try)
    assert "a later try of this task has begun" in str(found)

    class Silent(Store):
        def get(self, *_: Any) -> Any:
            if self.get_raises:
                raise RuntimeError("this try is over")

        get_raises = False

    silent = Silent()

    def cut_off() -> None:
        silent.get_raises = True
        fenced()

    for one, commit in ((None, fenced), (silent, cut_off)):
        found, _ = attempt(one, NOTHING, commit)
        assert "a later try of this task, or by another Airflow" in str(found)

    def too_late() -> None:
        time.sleep(0.35)
        fenced()

    assert "ran out of time" in str(attempt(Store(), NOTHING, too_late)[0])
    assert isinstance(found, ProducerFenced)


def test_records_that_are_purged_because_of_another_producer_are_not_the_reason() -> None:
    """librdkafka says of them only that it has purged them, and raises the reason wherever it is called next."""

    class Purging(Client):
        def flush(self, timeout: float) -> int:
            self.on_delivery(KafkaError(PURGED), None)
            return 0

        def produce(self, topic: str, on_delivery: Any, **record: Any) -> None:
            self.on_delivery = on_delivery

        def abort_transaction(self, timeout: float) -> None:
            fenced()

    class Crashing(Purging):
        def flush(self, timeout: float) -> int:
            try:
                fenced()
            except KafkaException as below:
                raise SystemError("a callback returned a result with an exception set") from below
            return 0

    class Forgetting(Purging):
        def flush(self, timeout: float) -> int:
            raise SystemError("<built-in method flush> returned NULL without setting an exception")

    for client in (Purging(), Crashing(), Forgetting()):
        operator = ProduceToTopicOperator(task_id="p", topic="t", records=[])
        with pytest.raises(ProducerFenced, match="no try of this task"):
            operator.write_once(context(Store()), NOTHING, client, "t", sending)  # type: ignore[arg-type]


def sending(writer: Writer) -> dict[str, Any]:
    writer.write([{"key": None, "value": b"v"}])
    return dict(RESULT)


def failing(_: Writer) -> dict[str, Any]:
    raise RecordsFailed("the brokers take no records")


def transactional_id(dag_id: str = "d", task_id: str = "t", run_id: str = "r", map_index: int = -1) -> str:
    ti = SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index)
    made: str = transaction_options({"ti": ti}, 60)["transactional.id"]
    return made


def test_no_two_tasks_have_one_transactional_id() -> None:
    assert transactional_id() == transactional_id() == "logyard-d/t/r/-1"
    assert transactional_id("a-b", "c") != transactional_id("a", "b-c")
    assert transactional_id("a", "b", "c-1") != transactional_id("a", "b-c", "1")
    assert len({transactional_id(map_index=number) for number in range(-1, 5)}) == 6


def test_two_airflows_can_have_ids_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = transactional_id()
    monkeypatch.setenv("AIRFLOW__LOGYARD__TRANSACTIONAL_ID_PREFIX", "logyard-west-")
    assert transactional_id() == "logyard-west-d/t/r/-1" != first
