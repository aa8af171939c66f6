"""Iceberg's Java library as far as an export into a directory calls it: one table, in this process."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.support.here_workers import HereWorkers

WAP, PUBLISHED_WAP = "wap.id", "published-wap-id"


class MemoryIceberg(HereWorkers):
    """Workers whose JVM has the library; `looks` counts the snapshots that were asked for."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self.looks = 0

    def context(self) -> Any:
        loader = SimpleNamespace(loadClass=lambda name: name)
        thread = SimpleNamespace(getContextClassLoader=lambda: loader)
        java = SimpleNamespace(lang=SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread)))
        org = SimpleNamespace(apache=SimpleNamespace(iceberg=self._library()))
        return SimpleNamespace(
            _jvm=SimpleNamespace(java=java, org=org), _jsc=SimpleNamespace(hadoopConfiguration=lambda: None)
        )

    def _library(self) -> Any:
        def create(*_: Any) -> None:
            self.table = Table(self)

        tables = SimpleNamespace(
            exists=lambda home: self.table is not None, create=create, load=lambda home: self.table
        )
        spec = SimpleNamespace(build=lambda: None)
        spec.identity = lambda column: spec
        return SimpleNamespace(
            hadoop=SimpleNamespace(HadoopTables=lambda configuration: tables),
            SchemaParser=SimpleNamespace(fromJson=lambda text: text),
            PartitionSpec=SimpleNamespace(builderFor=lambda schema: spec),
            DataFiles=SimpleNamespace(builder=lambda spec: DataFile()),
        )


class DataFile:
    """A file and its builder; `values` are its partition's."""

    def __init__(self) -> None:
        self.path, self.values = "", [""]

    def withPath(self, path: str) -> "DataFile":
        self.path = path
        return self

    def withFormat(self, _: str) -> "DataFile":
        return self

    def withFileSizeInBytes(self, _: int) -> "DataFile":
        return self

    def withRecordCount(self, _: int) -> "DataFile":
        return self

    def withPartitionValues(self, values: Sequence[str]) -> "DataFile":
        self.values = list(values)
        return self

    def build(self) -> "DataFile":
        return self


class Snapshot:
    def __init__(self, number: int, parent: int | None, summary: dict[str, str], files: Sequence[DataFile]) -> None:
        self.number, self.parent, self.said, self.files = number, parent, summary, list(files)

    def snapshotId(self) -> int:
        return self.number

    def parentId(self) -> int | None:
        return self.parent

    def summary(self) -> dict[str, str]:
        return self.said


class Table:
    """A table: snapshots that may be staged, the present one, and cherry-picking, which takes each id once."""

    def __init__(self, library: MemoryIceberg) -> None:
        self._library = library
        self._every: list[Snapshot] = []
        self._head: int | None = None

    def add(self, summary: dict[str, str], files: Sequence[DataFile] = (), *, staged: bool = False) -> Snapshot:
        made = Snapshot(len(self._every) + 1, self._head, summary, files)
        self._every.append(made)
        if not staged:
            self._head = made.number
        return made

    def history(self) -> list[Snapshot]:
        """The present snapshot and those before it, oldest first."""
        found, at = [], self._head
        while at is not None:
            found.append(self._every[at - 1])
            at = found[-1].parent
        return found[::-1]

    def files(self) -> list[DataFile]:
        return [file for snapshot in self.history() for file in snapshot.files]

    def currentSnapshot(self) -> Snapshot | None:
        return None if self._head is None else self.snapshot(self._head)

    def snapshot(self, number: int) -> Snapshot:
        self._library.looks += 1
        return self._every[number - 1]

    def snapshots(self) -> Any:
        def each() -> Any:
            for number in range(1, len(self._every) + 1):
                yield self.snapshot(number)

        return SimpleNamespace(iterator=each)

    def newAppend(self) -> "Append":
        return Append(self)

    def manageSnapshots(self) -> Any:
        return SimpleNamespace(cherrypick=lambda number: SimpleNamespace(commit=lambda: self.pick(number)))

    def pick(self, number: int) -> None:
        staged = self._every[number - 1]
        name = staged.said[WAP]
        if any(name in (s.said.get(WAP), s.said.get(PUBLISHED_WAP)) for s in self.history()):
            raise ValueError(f"Duplicate request to cherry pick wap id that was published already: {name}")
        if staged.parent == self._head:
            self._head = number
        else:
            self.add({PUBLISHED_WAP: name}, staged.files)

    def refresh(self) -> None:
        pass

    def schema(self) -> None:
        pass

    def spec(self) -> None:
        pass

    def properties(self) -> dict[str, str]:
        return {"schema.name-mapping.default": "[]"}

    def updateSchema(self) -> Any:
        same = SimpleNamespace(sameSchema=lambda schema: True)
        return SimpleNamespace(unionByNameWith=lambda schema: SimpleNamespace(apply=lambda: same))


class Append:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._summary: dict[str, str] = {}
        self._files: list[DataFile] = []
        self._made: Snapshot | None = None

    def stageOnly(self) -> "Append":
        return self

    def set(self, name: str, value: str) -> "Append":
        self._summary[name] = value
        return self

    def appendFile(self, file: DataFile) -> "Append":
        self._files.append(file)
        return self

    def commit(self) -> None:
        self._made = self._table.add(self._summary, self._files, staged=True)

    def updateEvent(self) -> Snapshot | None:
        return self._made
