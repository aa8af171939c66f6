"""Requests of the controller about very many partitions: their parts are translated and freed in portions."""

import asyncio
from collections.abc import Iterator
from typing import Any

from logyard.broker.model import ZERO_TOPIC_ID, TopicId
from logyard.broker.portions import AT_ONCE, portions


def are_many(states: list[Any], by_topic: bool) -> bool:
    """Whether a request has too much for one turn of the event loop; looks at no more than that."""
    if not by_topic:
        return len(states) > AT_ONCE
    left = AT_ONCE
    for topic in states:
        left -= 1 + len(topic.partition_states)
        if left < 0:
            return True
    return False


def named(states: list[Any], by_topic: bool) -> Iterator[tuple[str, Any]]:
    """Yield each partition's state with its topic."""
    if by_topic:
        return ((topic.topic_name, state) for topic in states for state in topic.partition_states)
    return ((state.topic_name, state) for state in states)


async def topic_ids(states: list[Any]) -> dict[str, TopicId]:
    """Return the ids of those topics that have one."""
    found: dict[str, TopicId] = {}
    async for topics in portions(states):
        found.update((topic.topic_name, topic.topic_id) for topic in topics if topic.topic_id != ZERO_TOPIC_ID)
    return found


async def let_go(states: list[Any], by_topic: bool) -> None:
    """Empty it in portions: to free a hundred thousand states at once takes 20 to 50 ms."""
    left = AT_ONCE
    while states:
        parts = states[-1].partition_states if by_topic else states
        count = min(len(parts), left)
        del parts[len(parts) - count :]
        left -= count
        if by_topic and not parts:
            states.pop()
            left -= 1
        if left <= 0:
            left = AT_ONCE
            await asyncio.sleep(0)
