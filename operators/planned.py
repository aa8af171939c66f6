"""Plans that one task makes and another one carries out, perhaps a day later: a plan that is there, on its cluster."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logyard.admin.cluster.identity import led_elsewhere
from logyard.admin.ports import Say
from logyard.admin.reassignment.forecast import forecast_lines
from logyard.admin.reassignment.space import room_lines, warnings
from logyard.admin.settings import BadSettings
from logyard.operators.fields import as_mapping


def as_plan(plan: Mapping[str, Any] | str | None, *, is_given: bool) -> dict[str, Any]:
    """A plan, or its JSON; empty where the task was given none.

    Raises BadSettings where it was given one (`is_given`) and nothing came: whoever has no plan would do all.
    """
    found = as_mapping("plan", plan)
    if is_given and not found:
        raise BadSettings("plan: there is none: did the task that makes it fail, or was it only marked as successful?")
    return found


def refuse_another_cluster(
    plan: Mapping[str, Any], cluster_id: str, advice: str = "plan again", since: str = "when the plan was made"
) -> None:
    """Raise BadSettings where the `cluster_id` of a plan, or of what an earlier try kept, is another one: the
    connection was edited since.

    Plans and clusters without an id pass.
    """
    if edited := led_elsewhere(plan.get("cluster_id"), cluster_id, since):
        raise BadSettings(f"{edited}: nothing is changed; {advice}")


def tell_effect(
    say: Say, warn: Say, brokers: Sequence[dict[str, Any]], disks: Sequence[Mapping[str, Any]], unsized: Iterable[str]
) -> None:
    """Say what a plan does to brokers (a forecast) and their disks, and warn of full disks and of bytes that are not
    known."""
    for line in (*forecast_lines(brokers), *room_lines(disks)):
        say(line)
    for line in (*warnings(disks), *unsized):
        warn(line)
