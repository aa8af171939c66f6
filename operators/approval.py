"""Approval of a plan by a person, with Airflow's human-in-the-loop operator."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timezone
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.reassignment.forecast import as_markdown
from logyard.admin.settings import BadSettings
from logyard.broker.log_format import escaped
from logyard.operators.asking import ApprovalOperator
from logyard.operators.failures import failing_for_good
from logyard.operators.fields import as_truth
from logyard.operators.planned import as_plan


class ApprovePlanOperator(ApprovalOperator):
    """Show a plan to a person and continue when it is approved; on rejection the rest of the run is skipped.

    If the plan changes nothing, nobody is asked; without a plan the task fails.

    :param plan: a plan of PlanReassignmentOperator or PlanTopicsOperator, or what a dry run of ResetOffsetsOperator,
        CancelReassignmentOperator or AbortHangingTransactionsOperator returned; or its JSON. (templated)
    :param required: false continues without asking, for callers that have decided already. (templated)
    """

    template_fields: Collection[str] = ("subject", "plan", "required")
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(self, *, plan: Mapping[str, Any] | str, required: bool | str = True, **kwargs: Any) -> None:
        kwargs.setdefault("ignore_downstream_trigger_rules", True)
        super().__init__(**kwargs)
        self.plan = plan
        self.required = required

    def validate_params(self) -> None:
        """Check nothing when the DAG is read: the params, which are the DAG's, get their values when it runs."""
        if not hasattr(type(self.params), "filter_params_by_source"):  # before Airflow 3.2 the form would show them
            self.params = type(self.params)()

    @failing_for_good
    def execute(self, context: Context) -> Any:
        plan = as_plan(self.plan, is_given=True)
        if not _MARKDOWN.keys() & plan.keys():
            # It would look like one that changes nothing, which needs no approval.
            raise BadSettings("plan: it is none that a planning task has returned")
        if is_empty(plan):
            self.log.info("the plan changes nothing: no approval is needed")
            return {"approved": True, "asked": False}
        if not as_truth("required", self.required):
            self.log.info("no approval is required")
            return {"approved": True, "asked": False}
        try:
            self.body = _MARKDOWN[_kind(plan)](plan)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadSettings(f"plan: its {_kind(plan)!r} are none that a planning task has returned") from None
        # Of names in it, such as a group's: a person must not read another question than the one that is asked.
        self.subject = escaped(self.subject)
        return super().execute(context)


def is_empty(plan: Mapping[str, Any]) -> bool:
    """Whether a plan changes nothing."""
    return not plan.get(_kind(plan))


def _kind(plan: Mapping[str, Any]) -> str:
    """The plan's member that says which kind of plan it is."""
    return next((kind for kind in _MARKDOWN if kind in plan), "partitions")


def catalog_markdown(plan: Mapping[str, Any]) -> str:
    """A plan of topics as Markdown for the person who approves it."""
    lines = [f"**{len(plan.get('actions') or [])} changes on cluster {plan.get('cluster_id')}**", "", "```diff"]
    lines += [str(line).replace("`", "'") for line in plan.get("lines") or []]
    lines.append("```")
    lines += [f"- ⚠ {warning}" for warning in plan.get("warnings") or []]
    if plan.get("unlisted"):
        lines.append(f"- not listed in the file, and not changed: {', '.join(map(str, plan['unlisted']))}")
    return "\n".join(lines)


def offsets_markdown(plan: Mapping[str, Any]) -> str:
    """The result of a dry run of ResetOffsetsOperator as Markdown for the person who approves it."""
    changed = plan["changed"]
    lines = [f"**{len(changed)} committed offsets change**", "", "| partition | from | to |", "|---|---|---|"]
    lines += [
        f"| {name} | {'none' if entry['before'] is None else format(entry['before'], ',')} | {entry['after']:,} |"
        for name, entry in list(changed.items())[:_SHOWN]
    ]
    return "\n".join([*lines, *_more(len(changed))])


def cancellation_markdown(plan: Mapping[str, Any]) -> str:
    """The result of a dry run of CancelReassignmentOperator as Markdown for the person who approves it."""
    moves = plan["cancelled"]
    lines = [f"**{len(moves)} moves are cancelled; their partitions go back to their former replicas**", ""]
    lines += [f"- `{m['topic']}-{m['partition']}`: {m['target']} → {m['replicas']}" for m in moves[:_SHOWN]]
    lines += _more(len(moves))
    lines += [
        f"- ⚠ `{name}` is not cancelled: {reason}" for name, reason in list(plan.get("kept", {}).items())[:_SHOWN]
    ]
    return "\n".join(lines)


def hanging_markdown(plan: Mapping[str, Any]) -> str:
    """The result of a dry run of AbortHangingTransactionsOperator as Markdown for the person who approves it."""
    found = plan["hanging"]
    lines = [f"**{len(found)} hanging transactions are aborted: their records are never read by who reads committed**"]
    lines += ["", "| partition | from offset | producer | epoch | last write |", "|---|---|---|---|---|"]
    lines += [
        f"| {one['topic']}-{one['partition']} | {one['start_offset']:,} | {one['producer_id']} | "
        f"{one['producer_epoch']} | {_time(one['last_ms'])} |"
        for one in found[:_SHOWN]
    ]
    return "\n".join([*lines, *_more(len(found))])


def _time(ms: int) -> str:
    """It is what the producer said: perhaps in no year that has a name."""
    try:
        return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return f"{ms} ms"


def _more(count: int) -> list[str]:
    return ["", f"… and {count - _SHOWN} more (the plan task's result has all of them)"] if count > _SHOWN else []


_SHOWN = 50
_MARKDOWN: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "actions": catalog_markdown,
    "changed": offsets_markdown,
    "cancelled": cancellation_markdown,
    "hanging": hanging_markdown,
    "partitions": as_markdown,
}
