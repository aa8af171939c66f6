"""Questions to transactions' coordinators: one request at a time to each, and every question answered (facts §17.3)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.verification import (
    Answers,
    Errors,
    Here,
    Question,
    Questions,
    VerificationNotOffered,
)
from logyard.broker.transactions.verification_figures import VerificationFigures

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
NOT_TOLD, FENCED = ErrorCode.NETWORK_EXCEPTION, ErrorCode.INVALID_PRODUCER_EPOCH

Requests = list[tuple[int, list[tuple[str, int]]]]


class World:
    """Coordinators 1 and 2: ids that begin with `a` are broker 1's, `b` broker 2's, others nobody's."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Sequence[Question], asyncio.Future[Answers]]] = []
        self.passed_s = 0.0
        self.figures = VerificationFigures(lambda: self.passed_s)
        self.questions = Questions(
            self.coordinator_of, self.ask, asyncio.get_running_loop().create_future, self.figures
        )

    @staticmethod
    def coordinator_of(transactional_id: str) -> BrokerInfo | None:
        number = {"a": 1, "b": 2}.get(transactional_id[0])
        return None if number is None else BrokerInfo(number, ())

    async def ask(self, broker: BrokerInfo, questions: Sequence[Question], /) -> Answers:
        answer: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.asked.append((broker.id, questions, answer))
        return await answer

    async def put(
        self,
        transactional_id: str,
        epoch: int = 0,
        *,
        producer_id: int = 7,
        partitions: Sequence[TopicPartition] = (T0, T1),
    ) -> "asyncio.Future[Errors]":
        pending = self.questions.put(Question(transactional_id, producer_id, epoch, partitions))
        if isinstance(pending, Mapping):
            told, pending = pending, asyncio.get_running_loop().create_future()
            pending.set_result(told)
        await turns()
        assert isinstance(pending, asyncio.Future)
        return pending

    async def answer(self, number: int, answers: Answers | Exception) -> None:
        future = self.asked[number][2]
        if isinstance(answers, Exception):
            future.set_exception(answers)
        else:
            future.set_result(answers)
        await turns()

    def requests(self) -> Requests:
        return [(broker, [(q.transactional_id, q.epoch) for q in questions]) for broker, questions, _ in self.asked]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def world() -> World:
    return World()


def both(code: ErrorCode) -> Errors:
    return {T0: code, T1: code}


async def test_one_request_is_in_flight_to_a_coordinator_and_the_next_gathers(world: World) -> None:
    first = await world.put("a1")
    second, third, other = await world.put("a2"), await world.put("a3"), await world.put("b1")
    assert world.requests() == [(1, [("a1", 0)]), (2, [("b1", 0)])]
    await world.answer(0, {"a1": {}})
    assert first.result() == {}
    assert world.requests()[2:] == [(1, [("a2", 0), ("a3", 0)])]
    await world.answer(2, {"a3": {T1: ErrorCode.INVALID_TXN_STATE}, "a2": {}})
    assert (second.result(), third.result()) == ({}, {T1: ErrorCode.INVALID_TXN_STATE})
    await world.answer(1, {"b1": {}})
    assert other.result() == {}
    again = await world.put("a1")
    await world.answer(3, {"a1": {}})
    assert again.result() == {}


async def test_answers_are_timed_and_refused_partitions_counted(world: World) -> None:
    first = await world.put("a1")
    world.passed_s = 0.004
    second, nobodys = await world.put("a2"), await world.put("c1")
    assert nobodys.result() == both(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (world.figures.failures, world.figures.sum_ms) == (0, 0), "nobody was asked"
    world.passed_s = 0.010
    await world.answer(0, {"a1": {T1: ErrorCode.TRANSACTION_ABORTABLE}})
    assert first.result() == {T1: ErrorCode.TRANSACTION_ABORTABLE}
    assert (world.figures.failures, round(world.figures.sum_ms)) == (1, 10)
    world.passed_s = 0.040
    await world.answer(1, LinkError("planted"))
    assert second.result() == both(NOT_TOLD)
    assert (world.figures.failures, round(world.figures.sum_ms)) == (3, 46), "the wait for the first request counts"


async def test_one_question_for_an_id_waits_at_a_time(world: World) -> None:
    await world.put("a0")
    first = await world.put("a1", epoch=1)
    second = await world.put("a1", epoch=1, producer_id=8)
    assert first.result() == both(NOT_TOLD), "the coordinator knows which producer has the id"
    third = await world.put("a1", epoch=1, producer_id=8)
    stale = await world.put("a1", epoch=0)
    assert stale.result() == both(FENCED)
    assert not second.done()
    newer = await world.put("a1", epoch=2)
    assert (second.result(), third.result()) == (both(FENCED), both(FENCED))
    await world.answer(0, {"a0": {}})
    assert world.requests()[1] == (1, [("a1", 2)])
    same = await world.put("a1", epoch=2)
    assert not newer.done(), "what is in flight is answered by the coordinator"
    await world.answer(1, {"a1": {}})
    await world.answer(2, {"a1": {}})
    assert (newer.result(), same.result()) == ({}, {})


async def test_questions_of_one_producer_become_one(world: World) -> None:
    """A client may send a request for each partition."""
    await world.put("a0")
    parts = [(T0,), (T1,), (T1, T2), (T0,)]
    asked = [await world.put("a1", partitions=each) for each in parts]
    await world.answer(0, {"a0": {}})
    assert world.requests()[1] == (1, [("a1", 0)])
    assert list(world.asked[1][1][0].partitions) == [T0, T1, T2]
    await world.answer(1, {"a1": {T1: FENCED}})
    refused = [{tp: code for tp, code in each.result().items() if code} for each in asked]
    assert refused == [{}, {T1: FENCED}, {T1: FENCED}, {}]
    assert world.figures.failures == 2


async def test_an_answer_that_does_not_come_ends_all_questions_of_a_producer(world: World) -> None:
    await world.put("a0")
    asked = [await world.put("a1", partitions=[each]) for each in (T0, T1)]
    await world.answer(0, {"a0": {}})
    await world.answer(1, {})
    assert [each.result() for each in asked] == [{T0: NOT_TOLD}, {T1: NOT_TOLD}]


async def test_while_nobody_coordinates_the_id(world: World) -> None:
    assert (await world.put("c")).result() == both(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.asked == []


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (LinkError("lost, or too late"), both(NOT_TOLD)),
        (CorruptData("odd"), both(NOT_TOLD)),
        (RuntimeError("a bug"), both(NOT_TOLD)),
        (VerificationNotOffered("an old broker"), {}),
        (ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), both(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)),
        (ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), both(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
    ],
)
async def test_a_request_that_fails_answers_all_it_asked_and_the_next_is_sent(
    world: World, failure: Exception, told: Errors
) -> None:
    await world.put("a0")
    first, second = await world.put("a1"), await world.put("a2")
    await world.answer(0, {"a0": {}})
    waiting = await world.put("a3")
    await world.answer(1, failure)
    assert (first.result(), second.result()) == (told, told)
    assert world.requests()[2] == (1, [("a3", 0)])
    await world.answer(2, {"a3": {}})
    assert waiting.result() == {}


async def test_what_an_answer_leaves_out_or_adds(world: World) -> None:
    """In Kafka 3.9 a Produce whose transaction is left out is never answered."""
    first = await world.put("a1")
    await world.answer(0, {"other": {}})
    assert first.result() == both(NOT_TOLD)


async def test_whoever_waits_may_go(world: World) -> None:
    gone, stays = await world.put("a1"), await world.put("a2")
    gone.cancel()
    await world.answer(0, {"a1": {}})
    await world.answer(1, {"a2": {}})
    assert stays.result() == {}


class OwnCoordinator:
    """This broker's: the id `a` has T0 in its transaction, and `adds` says what an addition is answered."""

    def __init__(self) -> None:
        self.adds = ErrorCode.NONE
        self.added: list[tuple[str, Producer, list[TopicPartition], int]] = []

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Errors:
        assert (transactional_id, producer) == ("a", Producer(7, 3))
        return {tp: ErrorCode.NONE if tp == T0 else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
    ) -> ErrorCode:
        self.added.append((transactional_id, producer, list(partitions), client_version))
        await turns()
        return self.adds


def beside(world: World, coordinator: OwnCoordinator) -> Questions:
    """The questions of broker 1, which coordinates the ids that begin with `a`."""
    new_pending = asyncio.get_running_loop().create_future
    return Questions(world.coordinator_of, world.ask, new_pending, world.figures, Here(1, coordinator))


async def test_this_brokers_own_coordinator_is_asked_at_once(world: World) -> None:
    questions = beside(world, OwnCoordinator())
    assert questions.put(Question("a", 7, 3, (T0, T1))) == {T1: ErrorCode.TRANSACTION_ABORTABLE}
    assert world.figures.failures == 1
    assert list(world.figures.cumulative())[-1] == ("+Inf", 1)
    assert isinstance(questions.put(Question("b", 7, 3, (T0,))), asyncio.Future)
    await turns()
    assert [broker for broker, _, _ in world.asked] == [2], "another's ids are asked of it"


async def test_additions_of_this_broker_do_not_wait_for_each_other(world: World) -> None:
    coordinator = OwnCoordinator()
    questions = beside(world, coordinator)
    asked = [questions.put(Question("a", 7, 3, (tp,), adds=True)) for tp in (T0, T1)]
    coordinator.adds = ErrorCode.CONCURRENT_TRANSACTIONS
    answers = await asyncio.gather(*(each for each in asked if not isinstance(each, Mapping)))
    assert answers == [{T0: coordinator.adds}, {T1: coordinator.adds}]
    assert coordinator.added == [("a", Producer(7, 3), [tp], 2) for tp in (T0, T1)]
    coordinator.adds = ErrorCode.NONE
    again = questions.put(Question("a", 7, 3, (T0,), adds=True))
    assert not isinstance(again, Mapping)
    assert await again == {}
    assert not world.asked
