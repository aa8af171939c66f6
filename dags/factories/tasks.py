"""Tasks that stand in several DAGs."""

from datetime import timedelta

from logyard.dags.factories import params
from logyard.operators.approval import ApprovePlanOperator
from logyard.operators.asking import answer_within
from logyard.operators.verification import VerifyReassignmentOperator

APPROVAL_TIMEOUT = timedelta(hours=24)


def approve_plan(subject: str, *, required: str = "{{ params.approve }}") -> ApprovePlanOperator:
    """The task `approve`: a person approves what the task `plan` returned.

    :param required: a template; where it renders to false, nobody is asked.
    """
    return ApprovePlanOperator(
        task_id="approve", subject=subject, plan=params.PLAN, required=required, **answer_within(APPROVAL_TIMEOUT)
    )


def verify_moves(logyard_conn_id: str, *, deferrable: bool = True) -> VerifyReassignmentOperator:
    """The task `verify`: check what the task `plan` returned, whatever became of the tasks that move replicas."""
    return VerifyReassignmentOperator(
        task_id="verify",
        plan=params.PLAN,
        deferrable=deferrable,
        trigger_rule="all_done",
        retries=1,
        retry_delay=timedelta(seconds=15),
        wait_timeout_s=6 * 3600,
        logyard_conn_id=logyard_conn_id,
    )
