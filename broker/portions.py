"""Work over very many things in portions, between which the event loop serves others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

# One takes some microseconds.
AT_ONCE = 1000


async def portions(things: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yield lists of AT_ONCE of the things, in order; others have a turn after each but the last."""
    left = iter(things)
    portion = list(islice(left, AT_ONCE))
    while portion:
        yield portion
        if portion := list(islice(left, AT_ONCE)):
            await asyncio.sleep(0)
