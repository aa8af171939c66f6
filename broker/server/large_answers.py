"""Answers of many parts: a client chooses how many, with a request of a few bytes.

Their fields are made in portions, between which the event loop serves others, and they are encoded in a thread.
"""

from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping
from typing import TypeVar

from logyard.broker.model import TopicPartition
from logyard.broker.server.request import Fields
from logyard.broker.server.services import Services

# A part, made and encoded, takes about 2 µs.
PARTS_AT_ONCE = 500
# A file that is written or made takes as long as so many parts, and longer where the disk is slow.
PARTS_OF_A_FILE = 50
# So many characters of a name take as long as a part, where Python looks at each of them: for the hash that finds a
# group's or transactional id's partition, or to encode a user's name. A client chooses it, of up to 32 KB.
CHARACTERS_OF_A_PART = 16

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def is_large(fields: Fields) -> bool:
    """Whether an answer has too many parts to be encoded in one turn of the event loop; looks at no more than that."""
    left, structs = PARTS_AT_ONCE, [fields]
    for each in structs:
        for value in each.values():
            if type(value) is list and value:
                left -= len(value)
                if left < 0:
                    return True
                if isinstance(value[0], (dict, Mapping)):
                    structs += value
    return False


def parts_of_name(name: str) -> int:
    """Return what the name of a group, a transactional id or a user takes that is looked for, in parts of an answer."""
    return 1 + len(name) // CHARACTERS_OF_A_PART


class Pauses:
    """Gives others a turn after each PARTS_AT_ONCE parts that were made."""

    def __init__(self, services: Services) -> None:
        self._turns = services.turns
        self._made = 0

    async def after(self, parts: int) -> None:
        """So many parts more are made."""
        self._made += parts
        if self._made >= PARTS_AT_ONCE:
            self._made = 0
            await self._turns.next()

    async def let_go(self, parts: list[T] | set[T]) -> None:
        """Empty it in portions: to free a hundred thousand parts of a request at once takes 20 to 50 ms."""
        while parts:
            count = min(len(parts), PARTS_AT_ONCE)
            for _ in range(count):
                parts.pop()
            await self.after(count)

    async def counted(self, parts: Iterable[H]) -> Counter[H]:
        """Return how often each of them comes, in the order in which they come first."""
        times = Counter[H]()
        async for part in self.between(parts):
            times[part] += 1
        return times

    async def partitions(self, topics: Iterable[tuple[str, Iterable[int]]]) -> dict[TopicPartition, None]:
        """Return the partitions of these topics, each once, in the order in which they come first."""
        named: dict[TopicPartition, None] = {}
        async for topic, indexes in self.between(topics):
            async for index in self.between(indexes):
                named[TopicPartition(topic, index)] = None
        return named

    async def between(self, parts: Iterable[T]) -> AsyncIterator[T]:
        """Yield parts of a request, each of which makes one of the answer."""
        for part in parts:
            await self.after(1)
            yield part
