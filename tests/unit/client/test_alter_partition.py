"""ISR changes: batched, one request in flight, asked of whoever is controller until each has its answer."""

import asyncio
import uuid

from logyard.broker.client.alter_partition import AlterPartitionSender
from logyard.broker.client.controller_link import ToController
from logyard.broker.errors import ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication.ports import IsrChangeResult
from tests.support.scripted_broker import Answer, Asked, HangUp, ScriptedBroker

ID_A, ID_B = uuid.UUID(int=1), uuid.UUID(int=2)


def granted(asked: Asked, errors: dict[int, int] | None = None) -> Answer:
    """Grant what is asked, with the next partition epoch; `errors` by partition number."""
    topics = [
        {
            "topic_id": getattr(topic, "topic_id", None) or uuid.UUID(int=0),
            "topic_name": getattr(topic, "topic_name", ""),
            "partitions": [
                {
                    "partition_index": p.partition_index,
                    "error_code": (errors or {}).get(p.partition_index, 0),
                    "leader_id": asked.body.broker_id,
                    "leader_epoch": p.leader_epoch,
                    "isr": [b.broker_id for b in p.new_isr_with_epochs] if asked.version >= 3 else p.new_isr,
                    "partition_epoch": p.partition_epoch + 1,
                }
                for p in topic.partitions
            ],
        }
        for topic in asked.body.topics
    ]
    return {"error_code": 0, "topics": topics}


class Leader:
    """A leader with its sender and what it has heard."""

    def __init__(self, *controllers: ScriptedBroker) -> None:
        self.controller: BrokerInfo | None = controllers[0].info if controllers else None
        self.epoch = 100
        self.sender = AlterPartitionSender(
            ToController(lambda: self.controller, "PLAINTEXT", "me"), 1, lambda: self.epoch
        )
        self.heard: dict[TopicPartition, IsrChangeResult] = {}
        self._news = asyncio.Event()

    def submit(self, partition: int, isr: tuple[int, ...], topic: str = "a", topic_id: uuid.UUID | None = ID_A) -> None:
        tp = TopicPartition(topic, partition)

        def hear(result: IsrChangeResult) -> None:
            assert tp not in self.heard, "called back twice"
            self.heard[tp] = result
            self._news.set()

        self.sender.submit(tp, topic_id, 5, isr, 7, hear, {2: 22})

    async def until(self, count: int) -> None:
        while len(self.heard) < count:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 10)


async def test_what_is_submitted_together_goes_together() -> None:
    async with ScriptedBroker(granted) as broker:
        leader = Leader(broker)
        for partition in range(3):
            leader.submit(partition, (1, 2))
        leader.submit(0, (1,), "b", ID_B)
        assert not leader.heard
        await leader.until(4)
        (asked,) = broker.asked
        assert (asked.version, asked.body.broker_id, asked.body.broker_epoch) == (3, 1, 100)
        told = [(b.broker_id, b.broker_epoch) for b in asked.body.topics[0].partitions[0].new_isr_with_epochs]
        assert told == [(1, -1), (2, 22)]
        assert leader.heard[TopicPartition("a", 2)] == IsrChangeResult(ErrorCode.NONE, 1, 5, (1, 2), 8, False)
        assert leader.heard[TopicPartition("b", 0)].isr == (1,)


async def test_what_comes_meanwhile_waits_for_the_answer() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(asked: Asked) -> Answer:
        arrived.set()
        await go_on.wait()
        return granted(asked)

    async with ScriptedBroker(slowly) as broker:
        leader = Leader(broker)
        leader.submit(0, (1,))
        await arrived.wait()
        leader.submit(1, (1,))
        leader.submit(2, (1,))
        go_on.set()
        await leader.until(3)
        assert [len(asked.body.topics[0].partitions) for asked in broker.asked] == [1, 2]


async def test_without_a_topic_id_everything_goes_by_name() -> None:
    async with ScriptedBroker(granted) as broker:
        leader = Leader(broker)
        leader.submit(0, (1, 2))
        leader.submit(0, (1,), "old", None)
        await leader.until(2)
        assert [asked.version for asked in broker.asked] == [1]
        assert leader.heard[TopicPartition("old", 0)].isr == (1,)


async def test_a_new_controller_is_found() -> None:
    async with ScriptedBroker(lambda asked: {"error_code": 41}, 1) as old, ScriptedBroker(granted, 2) as new:
        leader = Leader(old)
        leader.submit(0, (1,))
        while not old.asked:
            await asyncio.sleep(0.001)
        leader.controller = new.info
        await leader.until(1)
        assert len(new.asked) == 1


async def test_stale_epoch_lost_link_and_no_controller_are_no_answers() -> None:
    said: list[Answer] = [{"error_code": 77}, HangUp()]
    answers = iter(said)

    def script(asked: Asked) -> Answer:
        leader.epoch += 1
        return next(answers, None) or granted(asked)

    async with ScriptedBroker(script) as broker:
        leader = Leader()
        leader.submit(0, (1,))
        await asyncio.sleep(0.01)
        leader.controller = broker.info
        await leader.until(1)
        assert [asked.body.broker_epoch for asked in broker.asked] == [100, 101, 102]


async def test_each_partition_has_its_own_answer() -> None:
    errors = iter([{1: 95, 2: 41}])
    async with ScriptedBroker(lambda asked: granted(asked, next(errors, None))) as broker:
        leader = Leader(broker)
        for partition in range(3):
            leader.submit(partition, (1,))
        await leader.until(3)
        assert leader.heard[TopicPartition("a", 1)] == IsrChangeResult(ErrorCode.INVALID_UPDATE_VERSION)
        again = broker.asked[1].body.topics[0].partitions
        assert [p.partition_index for p in again] == [2]


async def test_a_partition_left_out_of_the_answer_is_asked_again_after_a_pause() -> None:
    calls = 0

    def script(asked: Asked) -> Answer:
        nonlocal calls
        calls += 1
        return {"error_code": 0, "topics": []} if calls == 1 else granted(asked)

    async with ScriptedBroker(script) as broker:
        leader = Leader(broker)
        leader.submit(0, (1,))
        await leader.until(1)
        assert calls == 2


async def test_close_ends_the_asking() -> None:
    leader = Leader()
    leader.submit(0, (1,))
    await asyncio.sleep(0.01)
    assert [task for task in asyncio.all_tasks() if task.get_name() == "alter partition"]
    leader.sender.close()
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "alter partition"]
