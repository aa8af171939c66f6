"""Merging small files of an export into larger ones: which files go together, and writing one merged file. The same
manifest gives the same groups and names."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.files import OpenFile
from logyard.spark_jobs.export.places.place import RunFiles

# Fewer small files than this are not merged, so that a file is not rewritten in every run.
TOGETHER_MIN = 8
# A file is small if it is this many times smaller than the target. With 2, nearly every file would be written twice:
# a split of the log that compresses at all makes a file a little below half of the target.
SMALLER = 4


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that become one, in order of offsets."""

    files: tuple[Mapping[str, Any], ...]

    @property
    def path(self) -> str:
        """The path of the merged file, beside the files that it replaces."""
        paths = [str(f["path"]) for f in self.files]
        digest = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:12]
        first, last = self.files[0], self.files[-1]
        name = f"m-{first['topic']}-{first['partition']}-{first['start']:020d}-{last['end']:020d}-{digest}.parquet"
        return os.path.join(os.path.dirname(paths[0]), name)

    @property
    def bytes(self) -> int:
        return sum(int(f["bytes"]) for f in self.files)


def plan_merges(
    files: Sequence[Mapping[str, Any]], target_bytes: int, together_min: int = TOGETHER_MIN
) -> Iterator[Merge]:
    """Yield groups of neighbours (same directory, partition and schema) far below the target: as many as fill it,
    or at least `together_min`."""
    places: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for one in files:
        places[os.path.dirname(str(one["path"])), one["topic"], one["partition"]].append(one)
    for place in sorted(places):
        group: list[Mapping[str, Any]] = []
        held = 0
        ordered: list[Mapping[str, Any] | None] = [*sorted(places[place], key=lambda f: (f["start"], f["end"])), None]
        for file in ordered:  # None ends the last group
            alike = file is not None and (not group or file.get("schema") == group[0].get("schema"))
            if file is not None and alike and file["bytes"] * SMALLER < target_bytes:
                group.append(file)
                held += int(file["bytes"])
                if held >= target_bytes:
                    yield Merge(tuple(group))
                    group, held = [], 0
                continue
            if len(group) >= max(together_min, 2):
                yield Merge(tuple(group))
            group = [file] if file is not None and not alike and file["bytes"] * SMALLER < target_bytes else []
            held = sum(int(f["bytes"]) for f in group)


def fitting(plan: Sequence[Merge], bytes_max: int) -> int:
    """Return how many merges, from the first on, add up to about `bytes_max`; at least one."""
    total = 0
    for count, merge in enumerate(plan, 1):
        total += merge.bytes
        if total >= bytes_max:
            return count
    return len(plan)


def write_merge(merge: Merge, files: RunFiles, ids: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Write the merged file, which no reader sees yet; returns its row for the manifest. Raises ExportRefused,
    CorruptData, StoreFailed.

    :param ids: as in `Output`.
    """
    first = merge.files[0]
    out: OpenFile | None = None
    try:
        for file in merge.files:
            for batch in _batches(files, str(file["path"]), int(file["rows"])):
                if out is None:
                    out = OpenFile(str(first["table"]), merge.path, files, batch.schema, ids)
                out.add(batch, np.int64(0))
                out.flush_full()
        assert out is not None, "a committed file has rows"
        made = out.finish()
    finally:
        if out is not None:
            out.drop()
    with np.errstate(over="ignore"):
        digest = np.array([int(f["digest"]) for f in merge.files], np.int64).sum()
    spans = {"start": first["start"], "end": merge.files[-1]["end"]}
    return {**first, **made.to_json(), **spans, "digest": int(digest)}


def _batches(files: RunFiles, path: str, rows: int) -> Iterator[Any]:
    where = files.where(path)
    try:
        with pq.ParquetFile(files.open(path)) as source:
            if source.metadata.num_rows != rows:
                raise CorruptData(f"{where}: it has {source.metadata.num_rows} rows, {rows} were committed")
            yield from source.iter_batches()
    except FileNotFoundError:
        raise ExportRefused(f"{where} is gone: another export of this directory is running") from None
