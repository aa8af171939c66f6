"""What Airflow has moved since 3.0, from where the installed Airflow has it: everything else imports it from here."""

try:
    from airflow.sdk import BaseHook
except ImportError:  # before 3.1
    from airflow.hooks.base import BaseHook  # type: ignore[attr-defined, no-redef]

try:
    from airflow.sdk import CronTriggerTimetable, conf
except ImportError:  # before 3.2
    from airflow.configuration import conf  # type: ignore[assignment]
    from airflow.timetables.trigger import CronTriggerTimetable  # type: ignore[assignment]

try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferred,
    )
except ImportError:  # before 3.2
    from airflow.exceptions import (  # type: ignore[attr-defined, no-redef]
        AirflowException,
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferred,
    )

try:
    from airflow.sdk.log import mask_secret
except ImportError:  # before 3.1
    from airflow.sdk.execution_time.secrets_masker import mask_secret  # type: ignore[no-redef]

try:
    from airflow.sdk._shared.secrets_masker import redact
except ImportError:  # before 3.1
    from airflow.sdk.execution_time.secrets_masker import redact  # type: ignore[no-redef]

try:
    from airflow.sdk import BaseNotifier
except ImportError:  # before 3.0.2
    from airflow.notifications.basenotifier import BaseNotifier  # type: ignore[import-not-found, no-redef]

try:
    from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory
except ImportError:  # before 3.0.2
    from airflow.decorators.base import (  # type: ignore[import-not-found, no-redef]
        DecoratedOperator,
        task_decorator_factory,
    )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "BaseHook",
    "BaseNotifier",
    "CronTriggerTimetable",
    "DecoratedOperator",
    "TaskDeferred",
    "conf",
    "mask_secret",
    "redact",
    "task_decorator_factory",
]
