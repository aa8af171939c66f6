"""Approval by a person, by Airflow's own human-in-the-loop operator, where it is wanted and there is anything to do."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from logyard.admin.forecast import as_markdown
from logyard.operators.base import as_mapping, as_truth


class ApprovePlanOperator(ApprovalOperator):
    """Show a plan to a person and go on when it was approved; on rejection the rest of the run is skipped.

    :param plan: a plan of PlanReassignmentOperator or PlanTopicsOperator, or its JSON. (templated)
    :param required: false goes on without asking: for callers that decided already. (templated)
    """

    template_fields: Collection[str] = ("subject", "plan", "required")
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(self, *, plan: Mapping[str, Any] | str, required: bool | str = True, **kwargs: Any) -> None:
        kwargs.setdefault("ignore_downstream_trigger_rules", True)
        super().__init__(**kwargs)
        self.plan = plan
        self.required = required

    def execute(self, context: Context) -> Any:
        plan = as_mapping("plan", self.plan)
        if is_empty(plan):
            self.log.info("nothing to do: nobody is asked")
            return {"approved": True, "asked": False}
        if not as_truth("required", self.required):
            self.log.info("no approval is required")
            return {"approved": True, "asked": False}
        self.body = catalog_markdown(plan) if "actions" in plan else as_markdown(plan)
        return super().execute(context)


def is_empty(plan: Mapping[str, Any]) -> bool:
    """Whether a plan changes nothing."""
    return not plan.get("actions") if "actions" in plan else not plan.get("partitions")


def catalog_markdown(plan: Mapping[str, Any]) -> str:
    """A plan of topics for whoever has to approve it."""
    lines = [f"**{len(plan.get('actions') or [])} changes on cluster {plan.get('cluster_id')}**", "", "```diff"]
    lines += [str(line).replace("`", "'") for line in plan.get("lines") or []]
    lines.append("```")
    lines += [f"- ⚠ {warning}" for warning in plan.get("warnings") or []]
    if plan.get("unlisted"):
        lines.append(f"- not listed, and left alone: {', '.join(map(str, plan['unlisted']))}")
    return "\n".join(lines)
