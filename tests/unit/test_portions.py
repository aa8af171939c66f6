"""Work over very many things in portions."""

import asyncio

import pytest

from logyard.broker import portions


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (9, [3, 3, 3])])
async def test_portions_have_all_things_in_order_and_others_have_turns_between(
    count: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "AT_ONCE", 3)
    turns, seen = 0, list[list[int]]()

    async def look() -> None:
        async for portion in portions.portions(range(count)):
            seen.append(portion)

    task = asyncio.create_task(look())
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    assert [len(portion) for portion in seen] == sizes
    assert [thing for portion in seen for thing in portion] == list(range(count))
    assert turns == max(1, len(sizes))
