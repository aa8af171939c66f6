"""A table of an Iceberg catalog. Only this module, and those that it alone imports, know the library (PyIceberg).

`CatalogTable.change` sends one commit, once. The library's own repetition is not used: after a conflict it puts the
same files on top of whatever the table holds by then, so two runs that publish one version would add it twice; and
after a last conflict it deletes the metadata of a commit that the catalog may have carried out (a request that is
repeated on the way is refused because of itself). Whoever calls reads the table again, and decides.
"""

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from logyard.broker.errors import LogyardError
from logyard.broker.extras import how_to_install
from logyard.spark_jobs.tables.partition_transforms import PartitionBy

try:
    from pyiceberg import exceptions as problems
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema, index_by_name
    from pyiceberg.table import Table
    from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
    from pyiceberg.typedef import Record
    from pyiceberg.utils.truncate import truncate_upper_bound_text_string

    from logyard.spark_jobs.tables.catalog_commits import Change, Once
    from logyard.spark_jobs.tables.catalog_history import History
except ModuleNotFoundError as _problem:
    _lacking: str | None = how_to_install(_problem, "iceberg")
    if _lacking is None:
        raise
else:
    _lacking = None

NAME = "name"
LOG_IN = "oauth2-server-uri"
# A commit writes its manifests first: some seconds for thousands of files.
PATIENCE_S, COMMIT_PATIENCE_S = 120.0, 600.0
# Bounds of text are cut after this many letters, as Iceberg's own writers do.
TEXT_BOUND = 16
FIRST_PARTITION_ID = 1000
# Of an export's settings for an object store, those that the library has another name for.
_FOR_FILES = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "endpoint": "s3.endpoint",
    "account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "sas_key": "adls.sas-token",
    "tenant_id": "adls.tenant-id",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
}

Answer = TypeVar("Answer")


class CatalogFailed(LogyardError):
    """A catalog refused a request, or cannot be reached; the text has no secret."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file to add: its URL, what the manifest tells of it, and the values of the partition columns."""

    url: str
    rows: int
    bytes: int
    stats: Mapping[str, Any]
    partition: tuple[Any, ...]


class IcebergCatalog:
    """A catalog."""

    def __init__(self, settings: Mapping[str, str], store: Mapping[str, str]) -> None:
        """:param settings: the library's properties (`type`, `uri`, `warehouse`, `credential` …); `name` is the
            catalog's own (`default`).
        :param store: the settings of the export's object store, for what `settings` does not say of it.
        """
        if _lacking is not None:
            raise CatalogFailed(_lacking)
        files = {_FOR_FILES[name]: value for name, value in store.items() if name in _FOR_FILES}
        self._settings = {**files, **settings}
        self._name = self._settings.pop(NAME, "default")
        if self._settings.get("type") == "rest" and "uri" in self._settings:
            # Where the library looks by itself, with a warning at each start that it will not for ever.
            self._settings.setdefault(LOG_IN, f"{self._settings['uri'].rstrip('/')}/v1/oauth/tokens")
        self._connected: Catalog | None = None

    @property
    def chooses_locations(self) -> bool:
        """Whether the catalog itself has a place for tables' metadata."""
        return "warehouse" in self._settings or self._settings.get("type") == "rest"

    def load(self, name: str) -> "CatalogTable | None":
        """Return a table, None if there is none; raises CatalogFailed."""

        def look() -> CatalogTable | None:
            try:
                return CatalogTable(self, self._catalog().load_table(name))
            except (problems.NoSuchTableError, problems.NoSuchNamespaceError):
                return None

        return self.ask(look)

    def create(
        self,
        name: str,
        schema: Mapping[str, Any],
        by: Sequence[PartitionBy],
        properties: Mapping[str, str],
        location: str | None,
    ) -> None:
        """Create a table and its namespace, unless they are there; raises CatalogFailed.

        :param schema: Iceberg's JSON.
        """

        def make() -> None:
            made = Schema.model_validate(schema)
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            catalog.create_table_if_not_exists(
                name, made, location=location, partition_spec=_spec(made, by), properties=dict(properties)
            )

        self.ask(make)

    def ask(self, work: Callable[[], Answer], patience_s: float | None = None) -> Answer:
        """Do what asks the catalog; raises CatalogFailed for the library's errors, and after `patience_s`.

        The library sets no time limit for a server that keeps a connection open without an answer. What is asked too
        long goes on in its thread, and may still be done: nothing is known then, as after a lost answer.
        """
        with _Telling(self._settings):
            return _within(PATIENCE_S if patience_s is None else patience_s, work)

    def _catalog(self) -> Any:
        if self._connected is None:
            self._connected = load_catalog(self._name, **self._settings)
        return self._connected


class CatalogTable:
    """One state of a table."""

    def __init__(self, catalog: IcebergCatalog, table: "Table") -> None:
        self._catalog, self._table = catalog, table

    @property
    def uuid(self) -> str:
        return str(self._table.metadata.table_uuid)

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self._table.metadata.properties)

    @property
    def location(self) -> str:
        return str(self._table.location())

    @property
    def ids(self) -> dict[str, int]:
        """The columns' ids, by their names with dots."""
        return dict(index_by_name(self._table.schema()))

    def has_partitions(self, by: Sequence[PartitionBy]) -> bool:
        """Whether the table is partitioned so."""
        schema, spec = self._table.schema(), self._table.spec()
        found = [(f.name, schema.find_column_name(f.source_id), str(f.transform)) for f in spec.fields]
        return found == [(one.name, one.source, one.transform) for one in by]

    def grow(self, schema: Mapping[str, Any]) -> bool:
        """Add the columns that the table lacks; returns False if another commit came first. Raises CatalogFailed."""
        wanted = Schema.model_validate(schema)

        def add() -> bool:
            try:
                with self._table.update_schema() as update:
                    update.union_by_name(wanted)
            except problems.CommitFailedException:
                return False
            return True

        return self._catalog.ask(add)

    def change(
        self,
        kind: str,
        added: Sequence[NewFile],
        removed: Collection[str],
        snapshot: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> None:
        """Add and remove files and set properties of the table, in one commit on this very state of it.

        :param kind: `append`, `overwrite`, or `replace` if no row changes.
        :param removed: URLs of files.

        Raises NotInTable, and nothing was sent; CatalogFailed, and then nothing is known: read the table again.
        """

        def send() -> None:
            commit = Once(self._table)
            with Change(commit, kind, removed, snapshot) as change:
                for file in added:
                    change.append_data_file(self._data_file(file))
            commit.set_properties(dict(properties))
            commit.commit_transaction()

        self._catalog.ask(send, COMMIT_PATIENCE_S)

    def history(self, work: Callable[["History"], Answer]) -> Answer:
        """Do something with the table's snapshots and their files; raises CatalogFailed."""
        return self._catalog.ask(lambda: work(History(self._table)), COMMIT_PATIENCE_S)

    def _data_file(self, file: NewFile) -> Any:
        kinds: dict[str, Any] = {name: self._table.schema().find_type(int(name)) for name in file.stats["lower"]}
        lower = {int(name): to_bytes(kinds[name], _cut(value)) for name, value in file.stats["lower"].items()}
        upper = {
            int(name): to_bytes(kinds[name], bound)
            for name, value in file.stats["upper"].items()
            if (bound := _cut_above(value)) is not None
        }
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.url,
            file_format=FileFormat.PARQUET,
            partition=Record(*file.partition),
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            column_sizes=_numbered(file.stats["sizes"]),
            value_counts=_numbered(file.stats["counts"]),
            null_value_counts=_numbered(file.stats["nulls"]),
            nan_value_counts={},
            lower_bounds=lower,
            upper_bounds=upper,
            key_metadata=None,
            split_offsets=list(file.stats["offsets"]),
            equality_ids=None,
            sort_order_id=None,
        )
        made.spec_id = self._table.metadata.default_spec_id
        return made


class _Telling:
    """Turns the library's errors, and those of what it uses, into ours, without secrets."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, LogyardError):
            return
        text = " ".join(f"{type(error).__name__}: {error}".partition("\n")[0].split())
        for name, value in sorted(self._settings.items(), key=lambda one: len(str(one[1])), reverse=True):
            if name not in ("type", "warehouse") and len(str(value)) > 3:
                text = text.replace(str(value), "…")
        raise CatalogFailed(f"the catalog: {text[:500]}") from None


def _within(patience_s: float, work: Callable[[], Answer]) -> Answer:
    """Return what `work` returns in a thread of its own; raises what it raises, CatalogFailed after `patience_s`."""
    ended: Future[Answer] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=run, name="iceberg-catalog", daemon=True).start()
    if not wait([ended], patience_s).done:
        raise CatalogFailed(f"the catalog: no answer within {patience_s:.0f} s; what was asked may still be done")
    return ended.result()


def settings_of(path: str) -> dict[str, str]:
    """Read a catalog's settings from a JSON file; raises CatalogFailed, which tells nothing of its content."""
    try:
        with open(path, encoding="utf-8") as file:
            row = json.load(file)
    except (OSError, ValueError) as error:
        raise CatalogFailed(f"--catalog {path}: a JSON file is expected ({type(error).__name__})") from None
    if not isinstance(row, dict) or not all(isinstance(value, (str, int, bool)) for value in row.values()):
        raise CatalogFailed(f"--catalog {path}: a JSON object of texts, numbers and true or false is expected")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in row.items()}


def _spec(schema: Any, by: Sequence[PartitionBy]) -> Any:
    return PartitionSpec(*_fields(schema, by))


def _fields(schema: Any, by: Sequence[PartitionBy]) -> Iterator[Any]:
    kinds = {
        "identity": IdentityTransform,
        "year": YearTransform,
        "month": MonthTransform,
        "day": DayTransform,
        "hour": HourTransform,
    }
    for number, one in enumerate(by, FIRST_PARTITION_ID):
        source = schema.find_field(one.source).field_id
        yield PartitionField(source, number, kinds[one.transform](), one.name)


def _numbered(row: Mapping[str, int]) -> dict[int, int]:
    return {int(name): value for name, value in row.items()}


def _cut(value: Any) -> Any:
    return value[:TEXT_BOUND] if isinstance(value, str) else value


def _cut_above(value: Any) -> Any:
    return truncate_upper_bound_text_string(value, TEXT_BOUND) if isinstance(value, str) else value
