"""Parts of an answer that may come later, or not at all."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from logyard.admin.errors import LogyardError
from logyard.plugins.logyard_ui.cache.cache import Found

T = TypeVar("T")


@dataclass(slots=True)
class Extras:
    """What of an answer is not there yet (`pending`) or could not be had (`problems`)."""

    pending: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, found: Found[T]) -> T | None:
        """The value, if there is one, be it an older one; notes what is to be said about it."""
        if found.pending:
            self.pending.append(name)
        if found.problem is not None:
            self.problems[name] = told(found.problem)
        return found.value

    def as_json(self) -> dict[str, Any]:
        return {"pending": self.pending, "problems": self.problems}


def told(problem: Exception) -> str:
    """One line about what went wrong; of what is not ours only its kind, since its text may hold anything."""
    if isinstance(problem, LogyardError):
        return " ".join(str(problem).split())[:1000]
    return f"unexpected {type(problem).__name__}"
