"""The transactional APIs as frames: versions, rights, and how errors look in each version (facts §17.2 to §17.7)."""

import asyncio
import gc
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.server import authorization
from logyard.broker.server.api_table import APIS
from logyard.broker.server.request import Request, Session
from logyard.broker.server.rights import EverythingAllowed, Operation, Resource
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored, Transaction
from tests.support.longest_turn import longest_turn
from tests.support.transaction_world import TIMEOUT_MS, TP, TransactionWorld

NONE, FENCED, EPOCH = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
KEYS = {api.name: key for key, api in APIS.items()}
ID = {"transactional_id": "x"}
TURN_S = 0.1  # a turn has a tenth of it; 0.2 s and more without portions


class Refusing:
    """Rights that refuse one operation on one name."""

    is_open = False

    def __init__(self, operation: Operation, resource: Resource, name: str) -> None:
        self._refused = operation, resource, name

    def allow(
        self,
        session: Session,
        operation: Operation,
        resource: Resource,
        name: str,
        api_key: int | str = -1,
        count: int = 1,
    ) -> bool:
        return (operation, resource, name) != self._refused


class Asking:
    """Asks the handlers by the names of Kafka's APIs; `world` is what is behind them."""

    def __init__(self, world: TransactionWorld) -> None:
        self.world = world
        self.services = SimpleNamespace(
            transactions=world.coordinator,
            metadata=world.metadata,
            rights=EverythingAllowed(),
            groups=SimpleNamespace(partition_for=len),
            producer_ids=None,
            turns=Turns(),
            clock=world.clock,
        )

    async def __call__(self, api: str, version: int, **fields: Any) -> Any:
        key = KEYS[api]
        frame = codec.encode_request(key, version, 1, "", fields)
        body = memoryview(bytearray(frame))[14 + codec.is_flexible(key, version) :]
        message = codec.decode_request(key, version, body)
        handler = APIS[key].handler
        request = Request(key, version, 1, "", body, Session(1, "PLAINTEXT", "127.0.0.1"))
        assert handler.message is not None
        try:
            authorization.admit(cast(Services, self.services), request, message)
            answer: Any = handler.message(cast(Services, self.services), request, message)
            if not isinstance(answer, dict):
                answer = await answer
        except ApiError as refusal:
            answer = handler.error(message, version, refusal.code, refusal.message)
        encoded = memoryview(codec.encode_response(key, version, 1, answer))[4:]
        return codec.decode_response(key, version, encoded)[1]


@pytest.fixture
async def ask() -> AsyncIterator[Asking]:
    world = TransactionWorld()
    await world.elect()
    yield Asking(world)
    await world.coordinator.close()


def pair(producer: Producer) -> dict[str, int]:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


def topics(*partitions: TopicPartition) -> list[dict[str, Any]]:
    return [{"name": tp.topic, "partitions": [tp.partition]} for tp in partitions]


def codes(found: Any) -> dict[tuple[str, int], int]:
    return {(t.name, p.partition_index): p.partition_error_code for t in found for p in t.results_by_partition}


async def add(ask: Asking, version: int, producer: Producer, *partitions: TopicPartition, verify: bool = False) -> Any:
    if version >= 4:
        one = {**ID, **pair(producer), "verify_only": verify, "topics": topics(*partitions)}
        answer = await ask("AddPartitionsToTxn", version, transactions=[one])
        return codes(answer.results_by_transaction[0].topic_results)
    asked = {f"v3_and_below_{name}": value for name, value in {**ID, **pair(producer)}.items()}
    answer = await ask("AddPartitionsToTxn", version, **asked, v3_and_below_topics=topics(*partitions))
    return codes(answer.results_by_topic_v3_and_below)


@pytest.mark.parametrize("version", range(6))
async def test_init_producer_id(ask: Asking, version: int) -> None:
    first = await ask("InitProducerId", version, **ID, transaction_timeout_ms=TIMEOUT_MS)
    second = await ask("InitProducerId", version, **ID, transaction_timeout_ms=TIMEOUT_MS)
    assert [(a.error_code, a.producer_id, a.producer_epoch) for a in (first, second)] == [(0, 1000, 0), (0, 1000, 1)]
    bad = await ask("InitProducerId", version, **ID, transaction_timeout_ms=0)
    assert (bad.error_code, bad.producer_id, bad.producer_epoch) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    if version >= 3:
        late = await ask("InitProducerId", version, **ID, transaction_timeout_ms=1, producer_id=1000, producer_epoch=0)
        assert (late.error_code, late.producer_id) == (FENCED if version >= 4 else EPOCH, -1)


async def test_without_producer_ids_a_transactional_id_is_to_be_tried_again(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-14417: a client would end at REQUEST_TIMED_OUT."""
    with monkeypatch.context() as patch:
        loading = ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids yet")
        patch.setattr(ask.world.ids, "next", AsyncMock(side_effect=loading))
        answer = await ask("InitProducerId", 4, **ID, transaction_timeout_ms=TIMEOUT_MS)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    answer = await ask("InitProducerId", 4, **ID, transaction_timeout_ms=TIMEOUT_MS)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1000, 0)


@pytest.mark.parametrize("version", range(6))
async def test_adding_partitions(ask: Asking, version: int) -> None:
    producer = await ask.world.begin()
    assert await add(ask, version, producer, TP[0], TP[1]) == {("t", 0): NONE, ("t", 1): NONE}
    stale = Producer(producer.producer_id, 9)
    expected = EPOCH if version < 2 else FENCED
    assert await add(ask, version, stale, TP[0]) == {("t", 0): expected}
    assert ask.world.coordinator.describe("x").partitions == {TP[0], TP[1]}


@pytest.mark.parametrize("version", range(6))
async def test_one_bad_partition_fails_the_rest(ask: Asking, version: int) -> None:
    producer = await ask.world.begin()
    missing = TopicPartition("t", 99)
    answer = await add(ask, version, producer, TP[0], missing)
    assert answer == {("t", 0): NOT_ATTEMPTED, ("t", 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert ask.world.coordinator.describe("x").state == "Empty"
    internal = TopicPartition(OFFSETS_TOPIC, 0)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if version < 4 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await add(ask, version, producer, TP[0], internal) == {("t", 0): NOT_ATTEMPTED, (OFFSETS_TOPIC, 0): code}


@pytest.mark.parametrize("version", range(4))
async def test_rights_of_a_client_that_adds(ask: Asking, version: int) -> None:
    producer = await ask.world.begin()
    ask.services.rights = Refusing(Operation.WRITE, Resource.TOPIC, "t")
    assert await add(ask, version, producer, TP[0]) == {("t", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    ask.services.rights = Refusing(Operation.WRITE, Resource.TRANSACTIONAL_ID, "x")
    assert await add(ask, version, producer, TP[0]) == {("t", 0): ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_verify_many_transactions(ask: Asking, version: int) -> None:
    one, two = await ask.world.begin("a", TP[0]), await ask.world.begin("b", TP[1])
    asked = [
        {"transactional_id": name, **pair(producer), "verify_only": True, "topics": topics(*partitions)}
        for name, producer, partitions in (
            ("a", one, [TP[0], TP[1]]),
            ("b", two, [TP[1]]),
            ("nobody", two, [TP[1]]),
            ("", two, [TP[1]]),
        )
    ]
    answer = await ask("AddPartitionsToTxn", version, transactions=asked)
    assert answer.error_code == NONE
    assert {t.transactional_id: codes(t.topic_results) for t in answer.results_by_transaction} == {
        "a": {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE},
        "b": {("t", 1): NONE},
        "nobody": {("t", 1): ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        "": {("t", 1): ErrorCode.INVALID_REQUEST},
    }
    assert ask.world.coordinator.describe("a").partitions == {TP[0]}
    ask.services.rights = Refusing(Operation.CLUSTER_ACTION, Resource.CLUSTER, "kafka-cluster")
    refused = await ask("AddPartitionsToTxn", version, transactions=asked)
    assert (refused.error_code, refused.results_by_transaction) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


@pytest.mark.parametrize("version", range(5))
async def test_adding_offsets(ask: Asking, version: int) -> None:
    producer = await ask.world.begin()
    asked = {**ID, "group_id": "grp"}
    assert (await ask("AddOffsetsToTxn", version, **asked, **pair(producer))).error_code == NONE
    assert ask.world.coordinator.describe("x").partitions == {TopicPartition(OFFSETS_TOPIC, 3)}
    stale = await ask("AddOffsetsToTxn", version, **asked, producer_id=1000, producer_epoch=9)
    assert stale.error_code == (EPOCH if version < 2 else FENCED)
    for refused, code in (
        (Refusing(Operation.READ, Resource.GROUP, "grp"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (
            Refusing(Operation.WRITE, Resource.TRANSACTIONAL_ID, "x"),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ):
        ask.services.rights = refused
        assert (await ask("AddOffsetsToTxn", version, **asked, **pair(producer))).error_code == code


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commits", [True, False])
async def test_the_end(ask: Asking, version: int, commits: bool) -> None:
    producer = await ask.world.begin("x", TP[0])
    stale = await ask("EndTxn", version, **ID, producer_id=1000, producer_epoch=9, committed=commits)
    assert stale.error_code == (EPOCH if version < 2 else FENCED)
    assert (await ask("EndTxn", version, **ID, **pair(producer), committed=commits)).error_code == NONE
    await ask.world.settle()
    described = await ask("DescribeTransactions", 0, transactional_ids=["x"])
    assert described.transaction_states[0].transaction_state == ("CompleteCommit" if commits else "CompleteAbort")
    ask.services.rights = Refusing(Operation.WRITE, Resource.TRANSACTIONAL_ID, "x")
    refused = await ask("EndTxn", version, **ID, **pair(producer), committed=commits)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("commits", [True, False])
async def test_the_end_that_raises_the_epoch(ask: Asking, commits: bool) -> None:
    producer = await ask.world.begin("x", TP[0])
    for _ in range(2):  # a retry is told the same
        ended = await ask("EndTxn", 5, **ID, **pair(producer), committed=commits)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (NONE, producer.producer_id, 1)
        await ask.world.settle()
    stale = await ask("EndTxn", 5, **ID, producer_id=1000, producer_epoch=9, committed=commits)
    assert (stale.error_code, stale.producer_id, stale.producer_epoch) == (FENCED, -1, -1)
    ask.services.rights = Refusing(Operation.WRITE, Resource.TRANSACTIONAL_ID, "x")
    refused = await ask("EndTxn", 5, **ID, **pair(producer), committed=commits)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_add_partitions_for_clients(ask: Asking, version: int) -> None:
    producer = await ask.world.begin("x")
    asked = [{"transactional_id": "x", **pair(producer), "verify_only": False, "topics": topics(TP[0], TP[1])}]
    answer = await ask("AddPartitionsToTxn", version, transactions=asked)
    assert codes(answer.results_by_transaction[0].topic_results) == {("t", 0): NONE, ("t", 1): NONE}
    assert ask.world.coordinator.describe("x").partitions == {TP[0], TP[1]}
    stored = ask.world.stored()[-1]
    assert stored is not None
    assert (stored.state.label, stored.client_version) == ("Ongoing", 0), "a value of version 0 does not hold it"


async def test_additions_of_many_transactions_do_not_wait_for_each_other(ask: Asking) -> None:
    names = ("a", "b", "c")
    producers = {name: await ask.world.begin(name) for name in names}
    ask.world.log.holds = True
    asked = [
        {"transactional_id": name, **pair(producer), "verify_only": False, "topics": topics(TP[0])}
        for name, producer in producers.items()
    ]
    answering = asyncio.ensure_future(ask("AddPartitionsToTxn", 5, transactions=asked))
    await ask.world.settle()
    assert all(len(ask.world.stored(name)) == 2 for name in names), "all are in the log before one is acknowledged"
    for _ in names:
        ask.world.log.acknowledge()
    answer = await answering
    assert [t.transactional_id for t in answer.results_by_transaction] == list(names)
    assert all(codes(t.topic_results) == {("t", 0): NONE} for t in answer.results_by_transaction)


async def test_descriptions(ask: Asking) -> None:
    producer = await ask.world.begin("x", TP[0], TP[1])
    answer = await ask("DescribeTransactions", 0, transactional_ids=["x", "nobody", ""])
    found, unknown, empty = answer.transaction_states
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (NONE, "Ongoing", TIMEOUT_MS)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert found.transaction_start_time_ms == ask.world.clock.now_ms()
    assert [(t.topic, list(t.partitions)) for t in found.topics] == [("t", [0, 1])]
    assert (unknown.transactional_id, unknown.error_code) == ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    ask.services.rights = Refusing(Operation.DESCRIBE, Resource.TOPIC, "t")
    (found,) = (await ask("DescribeTransactions", 0, transactional_ids=["x"])).transaction_states
    assert (found.error_code, found.topics) == (NONE, [])
    ask.services.rights = Refusing(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, "x")
    (found,) = (await ask("DescribeTransactions", 0, transactional_ids=["x"])).transaction_states
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [0, 1])
async def test_lists(ask: Asking, version: int) -> None:
    await ask.world.begin("x", TP[0])
    await ask.world.begin("y")

    async def listed(*states: str, **fields: Any) -> Any:
        return await ask("ListTransactions", version, state_filters=list(states), producer_id_filters=[], **fields)

    found = await listed()
    assert {(t.transactional_id, t.producer_id, t.transaction_state) for t in found.transaction_states} == {
        ("x", 1000, "Ongoing"),
        ("y", 1001, "Empty"),
    }
    found = await listed("Ongoing", "Bygone")
    assert [t.transactional_id for t in found.transaction_states] == ["x"]
    assert found.unknown_state_filters == ["Bygone"]
    assert (await listed("Bygone")).transaction_states == []
    if version >= 1:
        found = await listed(duration_filter=1_000)
        assert [t.transactional_id for t in found.transaction_states] == ["y"]
    ask.services.rights = Refusing(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, "x")
    assert [t.transactional_id for t in (await listed()).transaction_states] == ["y"]
    ask.world.log.replicated = False
    await ask.world.elect(6)
    assert (await listed()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_many_ids_are_listed_in_portions(ask: Asking) -> None:
    """Whoever may connect may ask for all of them, as often as it likes."""
    led = ask.world.owned.loaded()[0]
    names = [f"id-{number}" for number in range(60_000)]
    stored = Stored(7, 0, 1000, State.ONGOING, frozenset(TP[:1]), 1, 1)
    led.transactions.update({name: Transaction(name, stored) for name in names})
    message = SimpleNamespace(state_filters=[], producer_id_filters=[], duration_filter=-1)
    answer, longest_s = await longest_of(ask, "ListTransactions", 1, message)
    assert [found["transactional_id"] for found in answer["transaction_states"]] == names
    assert longest_s < TURN_S


async def longest_of(ask: Asking, api: str, version: int, message: object) -> tuple[Any, float]:
    """Return a handler's answer, and the longest turn of the loop until it was there, without the collector."""
    handle = APIS[KEYS[api]].handler.message
    assert handle is not None
    request = Request(KEYS[api], version, 1, "", memoryview(b""), Session(1, "PLAINTEXT", "127.0.0.1"))
    gc.disable()
    try:
        async with longest_turn() as longest:
            answer: Any = handle(cast(Services, ask.services), request, message)
            answer = answer if isinstance(answer, dict) else await answer
    finally:
        gc.enable()
    return answer, longest.seconds


@pytest.mark.parametrize("is_known", [True, False])
async def test_many_partitions_are_added_in_portions(ask: Asking, is_known: bool) -> None:
    """A client may name partitions that are not there, and one that is as often as it likes."""
    producer = await ask.world.begin()
    numbers = [0] * 200_000 if is_known else list(range(200_000))
    message = SimpleNamespace(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[SimpleNamespace(name="t", partitions=numbers)],
    )
    answer, longest_s = await longest_of(ask, "AddPartitionsToTxn", 3, message)
    (told,) = answer["results_by_topic_v3_and_below"]
    codes_of = [(p["partition_index"], p["partition_error_code"]) for p in told["results_by_partition"]]
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_known:
        assert codes_of == [(0, NONE)]
    else:
        assert codes_of == [(n, NOT_ATTEMPTED if n < len(TP) else unknown) for n in numbers]
    assert ask.world.coordinator.describe("x").partitions == (set(TP[:1]) if is_known else set())
    assert longest_s < TURN_S


@pytest.mark.parametrize("verifies", [True, False])
async def test_many_transactions_are_looked_at_in_portions(ask: Asking, verifies: bool) -> None:
    names = [f"id-{number}" for number in range(20_000)]
    part = [SimpleNamespace(name="t", partitions=[1])]
    message = SimpleNamespace(
        transactions=[
            SimpleNamespace(transactional_id=name, producer_id=7, producer_epoch=0, verify_only=verifies, topics=part)
            for name in names
        ]
    )
    answer, longest_s = await longest_of(ask, "AddPartitionsToTxn", 5, message)
    results = answer["results_by_transaction"]
    assert [found["transactional_id"] for found in results] == names
    refusal = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert {
        p["partition_error_code"] for found in results for p in found["topic_results"][0]["results_by_partition"]
    } == {refusal}
    assert longest_s < TURN_S
