"""Schedules in a time zone."""

import pendulum

from logyard.operators.airflow_names import CronTriggerTimetable


def in_timezone(schedule: str | None, timezone: str | None) -> str | CronTriggerTimetable | None:
    """The cron expression or preset, by the clocks of a time zone such as `Europe/Berlin`.

    Without a time zone Airflow's own holds (`[core] default_timezone`). Raises pendulum's InvalidTimezone.
    """
    if schedule is None or timezone is None:
        return schedule
    return CronTriggerTimetable(schedule, timezone=pendulum.timezone(timezone))
