"""What tools ask of very many transactions, or of one with very many partitions, does not hold the event loop up."""

from types import SimpleNamespace
from typing import Any, cast

from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.handlers import describe_transactions, list_transactions
from logyard.broker.server.request import Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored, Transaction
from tests.support.longest_turn import longest_turn_of_the_new
from tests.support.transaction_world import TP, TransactionWorld

LIST, DESCRIBE = 66, 65
TURN_S = 0.04


async def world_of(*transactions: Transaction) -> TransactionWorld:
    """A coordinator that has them, each in its partition."""
    world = TransactionWorld()
    await world.elect()
    for each in transactions:
        led = world.owned.find(each.transactional_id)
        assert not isinstance(led, int)
        led.transactions[each.transactional_id] = each
    return world


async def asked(world: TransactionWorld, handler: Handler, key: int, message: object) -> Any:
    """Return the answer; no turn of the loop was long until it was there."""
    services = SimpleNamespace(
        transactions=world.coordinator, rights=EverythingAllowed(), turns=Turns(), clock=world.clock
    )
    request = Request(key, 0, 1, "", memoryview(b""), Session(1, "PLAINTEXT", "127.0.0.1"))
    assert handler.message is not None
    async with longest_turn_of_the_new() as longest:
        answer = await cast(Any, handler.message(cast(Services, services), request, message))
    assert longest.seconds < TURN_S
    await world.coordinator.close()
    return answer


async def test_many_ids_are_looked_through_in_portions() -> None:
    """By filters that none of them passes, and that a client may name again and again."""
    stored = Stored(7, 0, 1000, State.ONGOING, frozenset(TP[:1]), 1, 1)
    world = await world_of(*(Transaction(f"id-{number}", stored) for number in range(200_000)))
    message = SimpleNamespace(state_filters=["Ongoing", *["Empty"] * 1000], producer_id_filters=[1, 2])
    answer = await asked(world, list_transactions.HANDLER, LIST, message)
    assert answer["transaction_states"] == []


async def test_the_partitions_of_a_transaction_are_described_in_portions() -> None:
    """They were sorted by their topics and numbers in one turn."""
    numbers = list(range(50_000))
    places = frozenset(TopicPartition(topic, number) for topic in ("u", "t") for number in numbers)
    world = await world_of(Transaction("x", Stored(7, 0, 1000, State.ONGOING, places, 1, 1)))
    message = SimpleNamespace(transactional_ids=["x"])
    (found,) = (await asked(world, describe_transactions.HANDLER, DESCRIBE, message))["transaction_states"]
    assert [(topic["topic"], topic["partitions"]) for topic in found["topics"]] == [("t", numbers), ("u", numbers)]
