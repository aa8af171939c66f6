"""The one-line files that put the packaged DAGs into an Airflow's DAGs folder."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logyard.local import files
from logyard.local.errors import LocalError

# DAG → the arguments of its factory besides prefix and connection.
DAGS: Mapping[str, Sequence[str]] = {
    "abort_hanging_transactions": (),
    "alter_acls": (),
    "alter_broker_settings": (),
    "alter_quotas": (),
    "alter_user": (),
    "audit_replicas": ("spark",),
    "cancel_reassignment": (),
    "compact_segments": ("spark",),
    "controller_watch": (),
    "copy_records": (),
    "create_topic": (),
    "decommission_broker": (),
    "delete_groups": (),
    "elect_leaders": (),
    "export_segments": ("spark",),
    "grant_access": (),
    "maintain_table": ("spark",),
    "reassign_replicas": (),
    "recover_controller": (),
    "reset_offsets": (),
    "retention_report": (),
    "revoke_access": (),
    "send_record": (),
    "topic_lifecycle": (),
    "topics_as_code": ("directory",),
}
# The digest of the rest of the file shows whether it was changed.
_MARK = "# Written by `logyard airflow install-dags`: {}"
_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class DagFile:
    """The parameters of the files: the prefix of every dag_id, and the connections' ids. Raises LocalError."""

    prefix: str
    connection: str
    spark_connection: str

    def __post_init__(self) -> None:
        for name, value in (("connection", self.connection), ("spark-connection", self.spark_connection)):
            if not _ID.fullmatch(value):
                raise LocalError(f"--{name} {value!r}: letters, digits and . _ - are allowed")
        if self.prefix and not _ID.fullmatch(self.prefix):
            raise LocalError(f"--prefix {self.prefix!r}: letters, digits and . _ - are allowed")

    def text(self, dag: str) -> str:
        """Return the content of one DAG's file."""
        arguments = [repr(self.prefix), repr(self.connection)]
        arguments += [repr(self.spark_connection)] if "spark" in DAGS[dag] else []
        imports = [f"from logyard.dags.factories.{dag} import {dag}_dag", ""]
        if "directory" in DAGS[dag]:
            imports = ["from pathlib import Path", "", *imports]
            arguments.append("directory=Path(__file__).parent")
        body = "\n".join(["", *imports, f"dag = {dag}_dag({', '.join(arguments)})", ""])
        return f"{_MARK.format(_digest(body))}\n{body}"


def install(directory: Path, wanted: DagFile, dags: Sequence[str], *, force: bool = False) -> list[Path]:
    """Write the files of those DAGs and return their paths. Raises LocalError before anything is written."""
    strange = [dag for dag in dags if dag not in DAGS]
    if strange:
        raise LocalError(f"there is no DAG {strange[0]!r}: choose among {', '.join(DAGS)}")
    if not directory.is_dir():
        raise LocalError(f"{directory} is not a folder: create it, or name Airflow's DAGs folder")
    planned = {directory / f"{wanted.prefix}{dag}.py": wanted.text(dag) for dag in dags}
    for path in planned:
        if path.exists() and not force and not _is_ours(path):
            raise LocalError(f"{path} was not written by this command, or was changed since: move it, or use --force")
    for path, text in planned.items():
        files.write_text(path, text)
    return list(planned)


def _is_ours(path: Path) -> bool:
    """Whether this command wrote the file, and it is unchanged."""
    first, _, body = path.read_text(errors="replace").partition("\n")
    return first == _MARK.format(_digest(body))


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]
