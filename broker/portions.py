"""Work over very many things in portions, between which the event loop serves others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

# One takes some microseconds.
AT_ONCE = 1000


async def portions(things: Iterable[T], cost: Callable[[T], int] | None = None) -> AsyncIterator[list[T]]:
    """Yield lists of the things, in order; others have a turn after each but the last.

    A list has AT_ONCE things; with `cost` it ends with the one that makes them cost as much.
    """
    pieces = cut(things, cost, AT_ONCE)
    portion = next(pieces, [])
    while portion:
        yield portion
        if portion := next(pieces, []):
            await asyncio.sleep(0)


def cut(things: Iterable[T], cost: Callable[[T], int] | None, most: int) -> Iterator[list[T]]:
    """Yield lists of the things, in order: of `most` each; with `cost` one ends where its things cost as much."""
    left = iter(things)
    while portion := _next(left, cost, most):
        yield portion


def _next(left: Iterator[T], cost: Callable[[T], int] | None, most: int) -> list[T]:
    if cost is None:
        return list(islice(left, most))
    portion: list[T] = []
    used = 0
    for thing in left:
        portion.append(thing)
        used += cost(thing)
        if used >= most:
            break
    return portion
