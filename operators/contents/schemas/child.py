"""The decoding process: reads a question, answers it, and ends when nobody asks any more.

It has little memory, nothing of its parent's environment, and is killed where it takes too long: bytes and schemas are
written by others, and C code reads them. Where its parent is gone, its time of the CPU ends it.
"""

import json
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from logyard.admin.schema_registry import SchemaRegistry
from logyard.operators.contents.schemas.problems import RegistryAway, Undecoded
from logyard.operators.contents.schemas.process import BEGUN, SCHEMA
from logyard.operators.contents.schemas.reader import SchemaReader

MEMORY_BYTES = 1024 * 1024 * 1024
ANSWER_BYTES = 4 * 1024 * 1024
PROBLEM_CHARS = 300
HEAD = 8  # of a question: how long its JSON is; the record's bytes follow it
_SPARE_CPU_S = 10


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asked = Connection(os.dup(0), writable=False)
    told = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what a library prints is no answer
    reader = SchemaReader()
    told.send_bytes(BEGUN)
    while True:
        try:
            question = asked.recv_bytes()
        except EOFError:
            shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)  # its own, which its parent has made
            return
        told.send_bytes(_answer(reader, question, lambda: told.send_bytes(SCHEMA)))


def _answer(reader: SchemaReader, question: bytes, has_schema: Callable[[], None]) -> bytes:
    """`spent` in the answer: another process, with its memory free, might do what this one cannot; `later`: what is
    wrong is neither the record nor its schema."""
    length = int.from_bytes(question[:HEAD], "big")
    head = json.loads(question[HEAD : HEAD + length])
    limit_cpu(head["patience_s"])
    said: dict[str, Any] = {}
    try:
        kind, read = reader.reader(SchemaRegistry(**head["registry"]), head["schema"], head["patience_s"])
        has_schema()
        answer = json.dumps({"kind": kind, "content": read(question[HEAD + length :])}, default=_other).encode()
        if len(answer) <= ANSWER_BYTES:
            return answer
        why = "its content as JSON is larger than 4 MiB"
    except Undecoded as problem:
        why, said = str(problem), {"away": isinstance(problem, RegistryAway)}
    except MemoryError:
        why, said = "it is too large, or nested too deep, to be decoded", {"spent": True}
    except RecursionError:
        why = "it is too large, or nested too deep, to be decoded"
    except ImportError as problem:
        why, said = (
            f"{problem.name} is missing: pip install 'logyard[schemas]' where records are decoded",
            {"away": True},
        )
    except OSError as problem:  # a full disk, for instance
        why, said = f"it cannot be decoded now ({problem.strerror or type(problem).__name__})", {"later": True}
    except Exception as problem:
        why = f"it cannot be decoded ({type(problem).__name__})"
    # Names in it are others' choice: one line, which each record of such a schema is shown with.
    return json.dumps({"problem": " ".join(why.split())[:PROBLEM_CHARS], **said}).encode()


def limit_cpu(patience_s: float) -> None:
    """From now on a little more than its parent waits for, in this process and in each that it begins."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = round(used.ru_utime + used.ru_stime + patience_s) + _SPARE_CPU_S
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if most == resource.RLIM_INFINITY else min(seconds, most), most))


def _other(value: Any) -> str:
    """What JSON has no form for: bytes, times, decimals, UUIDs."""
    return value.hex(" ") if isinstance(value, (bytes, bytearray)) else str(value)


if __name__ == "__main__":
    main()
