"""Topics as code: plan the changes that a YAML file asks for, and apply the approved ones."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.ports import DescribingClient
from logyard.admin.settings import BadSettings
from logyard.admin.topics import access
from logyard.admin.topics.document import Catalog, CatalogPlan, apply, plan_catalog, read_configs
from logyard.operators import outcomes
from logyard.operators.access import password_of
from logyard.operators.airflow_names import conf
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_integer, as_mapping, as_names, as_truth
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.operators.planned import refuse_another_cluster
from logyard.operators.topic_names import once_free

_FILE_BYTES_MAX = 4 << 20


class CatalogOperator(ClusterOperator):
    """A task on the topics that a file describes (see `logyard.admin.topics.document`).

    :param file: the YAML file, relative to `[logyard] topics_directory`, else to `directory`. It must be inside that
        folder: a user who may run a DAG may not read other files of the worker. (templated)
    :param directory: the folder of such files; by default the folder of the DAG's file.
    :param delete_unlisted: delete topics that the file owns and does not list. (templated)
    :param deletes_max: refuse to delete more topics than this in one run. (templated)
    """

    template_fields: Sequence[str] = ("file", "delete_unlisted", "deletes_max", *ClusterOperator.template_fields)

    def __init__(
        self,
        *,
        file: str,
        directory: str | None = None,
        delete_unlisted: bool | str = False,
        deletes_max: int | str = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.file = file
        self.directory = directory
        self.delete_unlisted = delete_unlisted
        self.deletes_max = deletes_max

    def catalog(self, context: Context) -> Catalog:
        """Read the file. Raises BadSettings."""
        yaml: Any = importlib.import_module("yaml")  # heavy at parse time, and untyped
        path = resolved(self.file, Path(self.directory or Path(str(context["dag"].fileloc)).parent))
        try:
            if path.stat().st_size > _FILE_BYTES_MAX:
                raise BadSettings(f"file {self.file}: more than {_FILE_BYTES_MAX} bytes")
            return Catalog.read(yaml.safe_load(path.read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
            raise BadSettings(f"file {self.file}: {' '.join(str(problem).split())}") from None

    def make_plan(self, context: Context, client: DescribingClient) -> CatalogPlan:
        catalog = self.catalog(context)
        snapshot = client.witnessed()  # a broker that lags behind would have topics made, or hide those to delete
        return plan_catalog(
            catalog,
            snapshot,
            read_configs(client, [name for name in catalog.topics if name in snapshot.topics]),
            lacking=access.missing(catalog.access, client),
            delete_unlisted=as_truth("delete_unlisted", self.delete_unlisted),
            deletes_max=as_integer("deletes_max", self.deletes_max, 5),
        )


class PlanTopicsOperator(CatalogOperator):
    """Compare the file with the cluster; changes nothing. The result has every difference as a line.

    Returns changes, deletes, unlisted, warnings, lines, actions, empty.
    """

    tells = staticmethod(outcomes.topics_planned)

    def execute(self, context: Context) -> dict[str, Any]:
        with self.hook.client() as client:
            plan = self.make_plan(context, client)
        for line in (*plan.lines, *plan.access.lines()):
            self.log.info(line)
        for warning in plan.warnings:
            self.log.warning(warning)
        self.log.info("%d changes are needed", len(plan.actions()))
        return plan.as_json()


class ApplyTopicsOperator(CatalogOperator):
    """Make the changes that the file asks for and the approved plan names; changes that are made already are skipped.

    If the file or the cluster has changed since the plan was made, so that more than the plan would be done, or if the
    connection leads to another cluster since, it fails before it changes anything. The result's `refused` names the
    differences that could not be removed. A topic whose name is that of one that is still being deleted is created when
    that has ended, within `wait_timeout_s`.

    :param plan: what PlanTopicsOperator returned, or its JSON. (templated)
    """

    tells = staticmethod(outcomes.topics_applied)
    template_fields = ("plan", *CatalogOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(self, *, plan: Mapping[str, Any] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def execute(self, context: Context) -> dict[str, Any]:
        approved = as_mapping("plan", self.plan)
        if "actions" not in approved:
            raise BadSettings("plan: expected what PlanTopicsOperator returned")
        actions = as_names("actions", approved["actions"])
        hook = self.hook
        timeout_s = 0.0 if self.checks_only else self.wait_timeout_s

        def each(act: Callable[[], None]) -> None:
            once_free(lambda _: act(), hook.pause(), self.poll_interval_s, timeout_s)

        with hook.client() as client:
            plan = self.make_plan(context, client)
            refuse_another_cluster(approved, plan.cluster_id)
            changed, deleted = apply(client, plan, actions, dry_run=self.checks_only, each=each)
            if not self.checks_only:
                access.apply(client, plan.access, password_of)
        refused = [f"{c.topic}: {text}" for c in plan.changes for text in c.refused]
        for line in refused:
            self.log.warning("not done: %s", line)
        return {
            "changed": changed,
            "deleted": deleted,
            "rights": plan.access.lines(),
            "refused": refused,
            "dry_run": self.checks_only,
        }


def resolved(file: str, directory: Path) -> Path:
    """The file's path. Raises BadSettings if it is outside the allowed folder."""
    configured = conf.get(CONFIG_SECTION, "topics_directory", fallback="") or ""
    folder = Path(configured or directory).resolve()
    path = (folder / file).resolve()
    if not path.is_relative_to(folder) or path.suffix not in (".yaml", ".yml"):
        raise BadSettings(f"file {file!r}: expected a .yaml file below {folder}")
    return path
