"""How an export's committed versions get into a table besides its manifest, and what Delta and Iceberg share.

Rule 1: a version's staging directory stays until its files are published: its existence says that work is left.
Rule 2: everything that a publisher does may be done twice, even by two runs at once: its table takes each version once.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore


class TableFailed(LogyardError):
    """A table's library is missing or refused a version; the text says which library, and its error."""


class NotInTable(LogyardError):
    """A table's present state does not hold files as an export wrote them; nothing was sent."""


class Publisher(Protocol):
    """Publishes committed versions into one kind of table."""

    def check(self) -> None:
        """Raise TableFailed if the table's library is not on the class path."""
        ...

    def begin(self, store: ManifestStore, manifest: Manifest, layout: dict[str, Any]) -> tuple[dict[str, Any], Output]:
        """Publish what an earlier run left unpublished; returns the layout for this run's versions, and what its files
        hold. Raises TableFailed."""
        ...

    def publish(self, store: ManifestStore, manifest: Manifest) -> None:
        """Add the files of a committed version to the table; raises TableFailed."""
        ...

    def kept(self, store: ManifestStore) -> Iterable[str]:
        """Return paths of files that must stay although no version names them; raises TableFailed."""
        ...


def begin_plainly(
    publisher: Publisher, store: ManifestStore, manifest: Manifest, layout: dict[str, Any], output: Output
) -> tuple[dict[str, Any], Output]:
    """`begin` of a table that has nothing to say of layout and files."""
    if store.is_unpublished(manifest):
        publisher.publish(store, manifest)
    return layout, output


def need_class(context: Any, name: str, package: str) -> None:
    """Raise TableFailed naming the package if a class is not on the class path."""
    try:
        loader = context._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass(name)
    except Exception:
        raise TableFailed(f"{package} is not on Spark's class path: give spark-submit --packages or --jars") from None


def said(error: Exception) -> str:
    """Return the first line of a Java error; the name of an error that says nothing."""
    java = getattr(error, "java_exception", None)
    told = (str(java) if java is not None else str(error)).strip()
    return next(iter(told.splitlines()), type(error).__name__)[:300]


def properties(manifest: Manifest) -> str:
    """Return a version's offsets as JSON, for the table's own history."""
    topics = {name: {str(p): o for p, o in sorted(t.next_offsets.items())} for name, t in manifest.topics.items()}
    return json.dumps({"version": manifest.version, "run": manifest.run_id, "offsets": topics}, sort_keys=True)


def check_same(said: str | None, manifest: Manifest, table: str) -> None:
    """Raise TableFailed if the table already has this version from another run (if the manifests were restored from an
    older copy, for instance): it accepts a version once, so this run's rows would be missing.

    :param said: the offsets (`properties`) that the table has for the version; None if it does not tell.
    """
    if said is None:
        return
    try:
        run = json.loads(said)["run"]
    except (ValueError, KeyError, TypeError):
        return
    if run != manifest.run_id:
        raise TableFailed(
            f"{table} has a version {manifest.version} of run {run}, and will not take that of run {manifest.run_id}:"
            " the manifests are older than the table; export to another --destination"
        )


def of_table(files: Sequence[Any], table: str) -> list[Any]:
    """The manifest's files of one table."""
    return [f for f in files if f.get("table", table) == table]
