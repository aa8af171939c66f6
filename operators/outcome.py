"""What a task did, for people: one sentence and a small table, in its log, its XComs and on the page.

An operator's result has everything, for the tasks that follow; its outcome is what a reader wants to know first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.operators import assets
from logyard.operators.airflow_names import AirflowSkipException
from logyard.operators.failures import failing_for_good
from logyard.operators.lineage import TellsLineage

OUTCOME = "outcome"
"""The key of the XCom."""

_ROWS_MAX = 50
_executing: ContextVar[Any] = ContextVar("executing", default=None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`sentence` ends without a full stop; each row has a cell for each column."""

    sentence: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()

    def as_json(self) -> dict[str, Any]:
        """The XCom's value; of the rows the first 50, and how many there are."""
        return {
            "sentence": self.sentence,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows[:_ROWS_MAX]],
            "rows_in_all": len(self.rows),
        }

    def lines(self) -> list[str]:
        """The sentence, then the table with aligned columns."""
        rows = [[_cell(cell) for cell in row] for row in self.rows[:_ROWS_MAX]]
        if not rows:
            return [self.sentence]
        table = [list(self.columns), *rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(self.columns))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
        more = len(self.rows) - len(rows)
        return [self.sentence, *text, *([f"… and {more} more"] if more else [])]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class TellsOutcome(TellsLineage):
    """An operator that says at its end what it did, and fails for good where no retry helps (failures.py).

    `tells` makes the outcome of a result; it is None for operators that have nothing to say. `writes` names the topics
    that the result changed, each with what its asset's event tells; None for operators that change no topic.
    """

    tells: ClassVar[Any] = None  # a staticmethod of the result, of outcomes.py
    writes: ClassVar[Any] = None  # a staticmethod of the result, of written_topics.py

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "execute" in vars(cls):
            cls.execute = _telling(vars(cls)["execute"])  # type: ignore[attr-defined]  # of Airflow's base
        super().__init_subclass__(**kwargs)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a deferral, and end as `execute` does."""
        resumed: Callable[..., Any] = super().resume_execution  # type: ignore[misc]  # of Airflow's base
        with self._saying_why_nothing_is_done(context):
            result = failing_for_good(resumed)(next_method, next_kwargs, context)
        return self.told(context, result)

    def told(self, context: Context, result: Any) -> Any:
        """Log the outcome and keep it as an XCom, add the events of topics that changed; returns the result."""
        self.lineage_of = result
        if type(self).writes is not None and result is not None and not getattr(self, "checks_only", False):
            assets.announce(self, context, type(self).writes(result))
        tells: Callable[[Any], Outcome] | None = type(self).tells
        if tells is None or result is None:
            return result
        outcome = tells(result)
        for line in outcome.lines():
            self.log.info(line)  # type: ignore[attr-defined]  # of Airflow's base
        self.keep_outcome(context, outcome)
        return result

    def keep_outcome(self, context: Context, outcome: Outcome) -> None:
        """Keep it as an XCom, if the task keeps any; one that is kept later replaces it."""
        if getattr(self, "do_xcom_push", True):
            context["ti"].xcom_push(key=OUTCOME, value=outcome.as_json())

    @contextmanager
    def _saying_why_nothing_is_done(self, context: Context) -> Iterator[None]:
        """Keep the reason of a task that skips itself; Airflow's own line in the log has it already."""
        try:
            yield
        except AirflowSkipException as reason:
            self.keep_outcome(context, Outcome(f"Nothing was done: {reason}"))
            raise


def _telling(execute: Callable[..., Any]) -> Callable[..., Any]:
    guarded = failing_for_good(execute)

    @wraps(execute)
    def telling(self: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        if _executing.get() is self:
            # A subclass calls this class's `execute` and goes on: only the outermost one is the end.
            return guarded(self, context, *args, **kwargs)
        token = _executing.set(self)
        try:
            with self._saying_why_nothing_is_done(context):
                result = guarded(self, context, *args, **kwargs)
        finally:
            _executing.reset(token)
        return self.told(context, result)

    return telling
