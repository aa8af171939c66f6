"""A task's result as an XCom before the offsets of what it has read are committed, so that later tasks miss nothing."""

from typing import Any

from airflow.sdk import BaseOperator, Context

RESULT = "return_value"
"""The key under which Airflow keeps what `execute` returns, after it has returned: too late for a commit in it."""


def hand_over(task: BaseOperator, context: Context, result: Any) -> None:
    """Give Airflow the result of a task, if it keeps that; at the task's end Airflow does so itself, again.

    Raises what Airflow does where the result is too large or no JSON, or its database is away: then nothing is to be
    committed, and the next try reads the same records.
    """
    if task.do_xcom_push:
        context["ti"].xcom_push(key=RESULT, value=result)
