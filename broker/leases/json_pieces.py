"""A long answer as JSON, made in a thread: a log may have hundreds of thousands of producers.

The interpreter encodes a whole value in one step, in which no other thread runs. So a list is encoded in portions, with
pauses between them (`records/pauses.py`).
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from logyard.broker.event_loop import RunBlocking
from logyard.broker.portions import cut
from logyard.broker.records import pauses

# Small, because a piece is handed to the socket in one step.
PIECE_CHARS = 64 << 10


def json_pieces(value: Any) -> list[bytes]:
    """Return the JSON of a value, of one line, in pieces; call it in a thread. Raises TypeError as `json.dumps`."""
    pieces: list[bytes] = []
    gathered: list[str] = []
    size = 0
    for text in _texts(value):
        gathered.append(text)
        size += len(text)
        if size >= PIECE_CHARS:
            pieces.append("".join(gathered).encode())
            gathered, size = [], 0
    return [*pieces, "".join(gathered).encode()]


async def encoded(run: RunBlocking, value: Any) -> list[bytes]:
    """Return the same, made in a thread."""
    pieces: list[bytes] = await run(partial(json_pieces, value))
    return pieces


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for number, (key, one) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_text(key)}:"
            yield from _texts(one)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, portion in enumerate(cut(value, _parts, pauses.PARTS)):
            yield f"{',' if number else '['}{_text(portion)[1:-1]}"
            pauses.rest()
        yield "]" if value else "[]"
    else:
        yield _text(value)


def _parts(item: Any) -> int:
    """Count an item of a list, and what is in its own lists."""
    return 1 + sum(len(one) for one in item.values() if isinstance(one, list)) if isinstance(item, dict) else 1


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
