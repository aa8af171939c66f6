"""What an audit says: one thing that is wrong or odd, where exactly, and what."""

from dataclasses import asdict, dataclass
from typing import Any

OK, WARN, BAD = "ok", "warn", "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong (bad) or odd (warn): where exactly, and what."""

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
