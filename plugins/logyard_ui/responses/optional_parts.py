"""The parts of an answer that may be missing: those that are still being read, and those that could not be read."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from logyard.admin.errors import LogyardError
from logyard.plugins.logyard_ui.cache.cache import Cached

T = TypeVar("T")


@dataclass(slots=True)
class OptionalParts:
    """`pending`: parts that are not read yet; `problems`: part → why its last read failed."""

    pending: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, cached: Cached[T]) -> T | None:
        """The part's value, which may be an older one, or None; notes whether it is pending or has failed."""
        if cached.pending:
            self.pending.append(name)
        if cached.problem is not None:
            self.problems[name] = error_line(cached.problem)
        return cached.value

    def as_json(self) -> dict[str, Any]:
        return {"pending": self.pending, "problems": self.problems}


def error_line(problem: Exception) -> str:
    """One line about an error; of unexpected ones only the type, since their text may hold anything."""
    if isinstance(problem, LogyardError):
        return " ".join(str(problem).split())[:1000]
    return f"unexpected {type(problem).__name__}"
