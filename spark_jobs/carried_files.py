"""Files that came in a variable of the driver's process: their content is in this process's memory, and on no disk.

Whoever starts a driver on a host that does not share its files, and cannot send any with it, puts their content into
VARIABLE, by the job's option: `{"--security": "…"}` (operators/standalone_driver.py).
"""

import json
import os
from collections.abc import Sequence

VARIABLE = "LOGYARD_JOB_FILES"


def opened(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with paths that this process can open behind the options whose files were carried.

    The variable is removed, so that no process which this one starts inherits it. Raises ValueError if it is not a
    JSON object of texts.
    """
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return list(arguments)
    carried = json.loads(text)
    if not isinstance(carried, dict) or not all(isinstance(content, str) for content in carried.values()):
        raise ValueError(f"{VARIABLE}: a JSON object of texts is expected")
    words = list(arguments)
    for place, option in enumerate(words[:-1]):
        if option in carried:
            words[place + 1] = _in_memory(option, carried.pop(option))
    return words


def _in_memory(name: str, content: str) -> str:
    descriptor = os.memfd_create(name)
    with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
        file.write(content)
    return f"/proc/{os.getpid()}/fd/{descriptor}"
