"""Decodes what serializers of a schema registry wrote, in a process of its own (child.py), which is begun when needed.

Their head is a 0 and the schema's id in four bytes.
"""

import json
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from logyard.admin.schema_registry import SchemaRegistry
from logyard.operators.contents.schemas.problems import RegistryAway, Undecoded
from logyard.operators.contents.schemas.process import BEGUN, SCHEMA, DecodingProcess

HEAD = struct.Struct(">bi")
# What one answer may take: a start of the process, the registry, protoc.
ANSWER_S = 5.0
# For how long a registry that did not answer is not asked again.
AWAY_S = 10.0
SCHEMAS_MAX = 50
"""How many schemas one look of the page may ask for."""
RECORD_BYTES = 128 * 1024 * 1024
"""What is larger is not decoded: the process has to hold it several times."""
NOT_BEGUN = "the decoding process does not begin"

BySchema = Callable[[bytes], "tuple[str, Any] | None"]
"""Kind and content of bytes; None where they have no schema. Raises Undecoded."""


def schema_of(data: bytes) -> int | None:
    """The id in the head of the bytes."""
    if len(data) <= HEAD.size or data[0] != 0:
        return None
    number = int(HEAD.unpack_from(data)[1])
    return number if number > 0 else None


def refusing(problem: str) -> BySchema:
    """For a connection whose registry cannot be used: why, for each record that needs one."""

    def decode(data: bytes) -> tuple[str, Any] | None:
        if schema_of(data) is None:
            return None
        raise Undecoded(problem)

    return decode


class Decoder:
    """One process for all threads, which take turns.

    :param answer_s: how many seconds the process may take for an answer; None: ANSWER_S.
    :param tries: how many processes a record may end, or occupy for so long, before that is its own fault: one process
        may be ended by others, such as a host that has no memory left.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, answer_s: float | None = None, tries: int = 1
    ) -> None:
        self._clock = clock
        self._answer_s = ANSWER_S if answer_s is None else answer_s
        self._tries = tries
        self._lock = threading.Lock()
        self.process: DecodingProcess | None = None
        self._away: dict[SchemaRegistry, tuple[float, str]] = {}

    def close(self) -> None:
        with self._lock:
            self._end()

    def by(self, where: SchemaRegistry, schemas_max: int | None = SCHEMAS_MAX) -> BySchema:
        """For one look: asks for at most so many schemas. None: for a task, which decodes whatever comes."""
        seen: set[int] = set()

        def decode(data: bytes) -> tuple[str, Any] | None:
            number = schema_of(data)
            if number is None:
                return None
            if len(data) > RECORD_BYTES:
                raise Undecoded("it is larger than 128 MiB")
            if schemas_max is not None and number not in seen and len(seen) >= schemas_max:
                raise Undecoded(f"schema {number}: one look asks for {schemas_max} schemas at most")
            seen.add(number)
            return self._decode(where, number, data[HEAD.size :])

        return decode

    def _decode(self, where: SchemaRegistry, number: int, data: bytes) -> tuple[str, Any]:
        with self._lock:
            until, why = self._away.get(where, (0.0, ""))
            if self._clock() < until:
                raise RegistryAway(why)
            answer = self._answer(where, number, data)
            if answer.get("away"):
                self._away = {where: (self._clock() + AWAY_S, str(answer["problem"]))}
        if answer.get("away") or answer.get("later"):
            raise RegistryAway(str(answer["problem"]))
        if "problem" in answer:
            raise Undecoded(str(answer["problem"]))
        return str(answer["kind"]), answer["content"]

    def _answer(self, where: SchemaRegistry, number: int, data: bytes) -> dict[str, Any]:
        for _ in range(self._tries - 1):
            answer = self._ask(where, number, data)
            if not answer.get("spent"):
                return answer
        return self._ask(where, number, data)

    def _ask(self, where: SchemaRegistry, number: int, data: bytes) -> dict[str, Any]:
        """The process's answer; `spent`: this process cannot go on, and another one might answer otherwise."""
        if self.process is not None and self.process.has_ended:
            self._end()
        try:
            self.process = self.process or DecodingProcess()
        except OSError as problem:
            return {"problem": f"{NOT_BEGUN}: {problem.strerror or type(problem).__name__}", "away": True}
        head = json.dumps({"registry": asdict(where), "schema": number, "patience_s": self._answer_s}).encode()
        try:
            said = self.process.ask(len(head).to_bytes(8, "big") + head + data, self._answer_s)
        except (EOFError, OSError):
            return self._spent("its bytes end the decoder")
        if said is None:
            return self._spent("in time")
        try:
            answer: dict[str, Any] = json.loads(said)
        except RecursionError:  # of this thread's stack; the process has less on its own
            return {"problem": "it is nested too deep to be decoded"}
        if answer.get("spent"):
            self._end()
        return answer

    def _spent(self, why: str) -> dict[str, Any]:
        """What to say of a process that has ended, or has to; it goes."""
        step = "" if self.process is None else self.process.step
        self._end()
        if step == BEGUN:  # nothing of the record was read: the registry sends a byte now and then, for instance
            if why == "in time":
                return {"problem": "its schema is not there in time", "later": True}
            return {"problem": "it cannot be decoded: its schema ends the decoder", "spent": True}
        if step == SCHEMA:
            return {"problem": f"it cannot be decoded{' ' if why == 'in time' else ': '}{why}", "spent": True}
        return {"problem": NOT_BEGUN, "away": True}

    def _end(self) -> None:
        if self.process is not None:
            self.process.end()
            self.process = None
