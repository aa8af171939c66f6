"""Airflow's way to ask a person, as the installed Airflow has it: from 3.1 on."""

import inspect
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context

from logyard.operators.airflow_names import AirflowFailException

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
# Before 3.1 the provider raises an error of its own, which is no ImportError.
except Exception:

    class ApprovalOperator(BaseOperator):  # type: ignore[no-redef]
        """Stands where Airflow cannot ask: its task fails, so that nothing is done unasked."""

        def __init__(self, *, subject: str, body: str | None = None, **kwargs: Any) -> None:
            kwargs.pop("ignore_downstream_trigger_rules", None)
            super().__init__(**kwargs)
            self.subject = subject
            self.body = body

        def execute(self, context: Context) -> Any:
            raise AirflowFailException(
                "this Airflow cannot ask for an approval: update to Airflow 3.1 with "
                'apache-airflow-providers-standard 1.8, or run with {"approve": false}'
            )


def answer_within(wait: timedelta) -> dict[str, timedelta]:
    """The argument of ApprovalOperator for how long it waits for an answer; it was renamed."""
    known: set[str] = set()
    for above in ApprovalOperator.__mro__:
        if "__init__" in vars(above):
            known |= inspect.signature(vars(above)["__init__"]).parameters.keys()
    return {"response_timeout" if "response_timeout" in known else "execution_timeout": wait}


__all__ = ["ApprovalOperator", "answer_within"]
