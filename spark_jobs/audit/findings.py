"""A finding: what an audit reports."""

from dataclasses import asdict, dataclass
from typing import Any

OK, WARN, BAD = "ok", "warn", "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong (BAD) or odd (WARN): which check found it, where exactly, and what it is.

    `position` is in bytes of `file`; position and offset are -1 where they do not apply.
    """

    level: str
    check: str
    topic: str
    partition: int
    replica: int
    file: str
    position: int
    offset: int
    message: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
