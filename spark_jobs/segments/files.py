"""The bytes of a segment as a task reads them: through hard links on a disk it sees, by ranged reads over HTTP, or from
a plain directory.

A `SegmentFile` is plain data that Spark ships to executors; the task opens it where it runs and finds out for itself
whether it sees the broker's disk.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from logyard.broker.compiled.chunks import ByteSource, Chunk, trusted_chunks
from logyard.broker.compiled.kernels import Array
from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.leases.client import Lease

INDEXES = {"log": layout.LOG, "index": layout.INDEX, "timeindex": layout.TIME_INDEX, "txnindex": layout.TXN_INDEX}
# A lease serves the leader epochs too, under this name.
SUFFIXES = INDEXES | {"snapshot": layout.SNAPSHOT, "epochs": ".epochs"}


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment of one replica; `last_offset` is -1 if it is not known (in a directory).

    `files`: the size of each existing file.
    """

    topic: str
    partition: int
    replica: int
    base_offset: int
    size: int
    files: Mapping[str, int]
    directory: str
    last_offset: int = -1
    active: bool = False
    lease: Lease | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The name of this file in findings: its path on the broker."""
        home = str(self.lease.details.get("directory", "")) if self.lease else self.directory
        return os.path.join(home, f"{self.base_offset:020d}.log")

    @property
    def where(self) -> str:
        """Its name in errors: topic, partition, segment, and the file."""
        return f"{self.topic}-{self.partition}, segment {self.base_offset} ({self.name})"

    def open(self, kind: str = "log") -> ByteSource:
        """Open one of its files for reading; raises LeaseError or OSError on the first read if it is gone."""
        size = self.files.get(kind, 0)
        directory: str | None = self.directory
        if self.lease is not None:
            directory = self.lease.local_links()
        if directory is not None:
            path = os.path.join(directory, f"{self.base_offset:020d}{SUFFIXES[kind]}")
            if os.access(path, os.R_OK) or self.lease is None:
                return LocalFile(path, size)
        assert self.lease is not None
        return RemoteFile(self.lease, self.lease.file_path(self.base_offset, kind), size)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of its log; raises CorruptBatch as `trusted_chunks` does."""
        last = self.last_offset if self.last_offset >= 0 else None
        return trusted_chunks(self.open(), self.where, self.base_offset, last)

    def read_all(self, kind: str) -> bytes:
        """Return the whole of a small file (an index), b"" if there is none."""
        size = self.files.get(kind, 0)
        return bytes(self.open(kind).read(0, size)) if size else b""


class LocalFile:
    """A file on this machine's disk, read up to a fixed size."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        self._descriptor = -1

    def read(self, position: int, size: int) -> Array:
        """Return `size` bytes from `position`; raises CorruptData if the file is shorter than expected."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        out: Array = np.empty(max(min(size, self.size - position), 0), np.uint8)
        got = 0
        while got < len(out):
            try:
                count = os.preadv(self._descriptor, [memoryview(out)[got:]], position + got)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.path) from error
            if not count:
                raise CorruptData(f"{self.path}: it ends at {position + got}, {self.size} bytes are expected")
            got += count
        return out

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class RemoteFile:
    """A leased file read over HTTP in ranges."""

    def __init__(self, lease: Lease, path: str, size: int) -> None:
        self._lease, self._path, self.size = lease, path, size

    def read(self, position: int, size: int) -> Array:
        """Return `size` bytes from `position`; raises LeaseError."""
        out: Array = np.empty(max(min(size, self.size - position), 0), np.uint8)
        if len(out) and self._lease.broker.read(self._path, position, len(out), memoryview(out)) != len(out):
            raise LeaseError("unreachable", f"{self._path}: the broker sent less than was asked for")
        return out


def of_lease(lease: Lease) -> list[SegmentFile]:
    """Return the segments of a lease, in offset order."""
    return [
        SegmentFile(
            topic=lease.topic,
            partition=lease.partition,
            replica=lease.broker.broker_id,
            base_offset=s.base_offset,
            size=s.size,
            files=dict(s.files),
            directory=str(lease.details.get("links_dir", "")),
            last_offset=s.last_offset,
            active=s.active,
            lease=lease,
        )
        for s in lease.segments
    ]


def of_directory(directory: str, replica: int = -1) -> list[SegmentFile]:
    """Return the segments of a partition's directory (`T-P`, of a stopped broker or a copy), the last marked active.

    Raises CorruptData if the name is not that of a partition's directory.
    """
    named = layout.parse_directory_name(os.path.basename(os.path.abspath(directory)))
    if named is None:
        raise CorruptData(f"{directory}: its name is not TOPIC-PARTITION")
    names = [f for f in map(layout.parse_file_name, os.listdir(directory)) if f is not None]
    bases = sorted(f.offset for f in names if f.kind == layout.LOG and not f.suffix)
    segments = []
    for base in bases:
        files: dict[str, int] = {}
        for kind, suffix in SUFFIXES.items():
            path = os.path.join(directory, layout.file_name(base, suffix))
            if os.path.exists(path):
                files[kind] = os.path.getsize(path)
        is_last = base == bases[-1]
        segments.append(
            SegmentFile(
                topic=named.partition.topic,
                partition=named.partition.partition,
                replica=replica,
                base_offset=base,
                size=files["log"],
                files={kind: files.get(kind, 0) for kind in ("log", "snapshot")} if is_last else files,
                directory=os.path.abspath(directory),
                active=is_last,
            )
        )
    return segments
