"""Merges of small files, each few as a version of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.spark_jobs.export import merges
from logyard.spark_jobs.export.following import Publishes, clock, commit_next
from logyard.spark_jobs.export.manifest import DATA, Manifest
from logyard.spark_jobs.export.manifest_store import Fenced, ManifestStore
from logyard.spark_jobs.session import Workers


@dataclass
class Merging:
    """What was merged so far: files that are gone, those that took their places, and their bytes before and after;
    `version`: the newest one that was committed, 0 if there is none."""

    store: ManifestStore
    workers: Workers
    tables: Publishes
    run_id: str
    ids: Mapping[str, int] | None = None
    merged: int = 0
    made: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    overtaken: int = 0
    version: int = 0
    _tries: int = 0

    def all(self, plan: Sequence[merges.Merge], manifest: Manifest, bytes_max: int) -> Manifest:
        """Carry out a plan, about `bytes_max` bytes in each version; returns the newest one."""
        left = list(plan)
        while left:
            count = merges.fitting(left, bytes_max)
            manifest = self._some(left[:count], manifest)
            left = left[count:]
        return manifest

    def _some(self, plan: Sequence[merges.Merge], manifest: Manifest) -> Manifest:
        self._tries += 1
        run_id, began = f"{self.run_id}-{self._tries}-merge", clock()
        place, ids = self.store.files(run_id), self.ids

        def write(merge: merges.Merge) -> tuple[merges.Merge, dict[str, Any]]:
            is_data = merge.files[0]["table"] == DATA
            return merge, merges.write_merge(merge, place, ids if is_data else None)

        with self.store.working(run_id):
            done = self.workers.each("merge", plan, lambda m: m.bytes, write)
            done.sort(key=lambda one: str(one[1]["path"]))
            kept = done

            def following(newest: Manifest) -> Manifest | None:
                nonlocal kept
                if newest is not manifest:
                    live = {str(f["path"]) for f in self.store.live_files()}
                    kept = [one for one in done if all(str(f["path"]) in live for f in one[0].files)]
                if not kept:
                    return None
                removed = [str(f["path"]) for merge, _ in kept for f in merge.files]
                return newest.advanced(run_id=run_id, files=[row for _, row in kept], removed=removed)

            def committed(made: Manifest) -> None:
                self.version = made.version
                self._count(kept)

            try:
                manifest = commit_next(self.store, self.tables, manifest, following, began, committed)
            except Fenced:
                if kept:
                    raise
                # Another run has merged all of them.
                manifest = self.store.latest()
            self.overtaken += len(done) - len(kept)
        return manifest

    def _count(self, done: Sequence[tuple[merges.Merge, Mapping[str, Any]]]) -> None:
        self.merged += sum(len(merge.files) for merge, _ in done)
        self.made += len(done)
        self.bytes_before += sum(merge.bytes for merge, _ in done)
        self.bytes_after += sum(int(row["bytes"]) for _, row in done)
