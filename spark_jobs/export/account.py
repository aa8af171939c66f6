"""What an export has committed and given up, and its summary."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.export.failures import FailedPartitions
from logyard.spark_jobs.export.files import WrittenSplit
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.merging import Merging
from logyard.spark_jobs.export.modes import WrittenPiece
from logyard.spark_jobs.segments.splits import Range


class Account:
    """The account of one run. `ranges`: what it was to export; `newest`: the newest version of exported rows."""

    def __init__(self, failed: FailedPartitions, merging: Merging) -> None:
        self._failed, self._merging = failed, merging
        self._done: list[WrittenPiece] = []
        self.ranges: Sequence[Range] = ()
        self.newest = Manifest()

    def add(self, made: WrittenPiece, version: Manifest) -> None:
        """Note a piece that is committed as this version, published or not."""
        self._done.append(made)
        self.newest = version

    @property
    def has_committed(self) -> bool:
        """Whether the run has committed a version."""
        return bool(self._done) or self._merging.merged > 0

    def unfinished(self) -> list[str]:
        """Return the topics of partitions that are not exported to their ends, and were not given up either."""
        left = (span.replica for span in self.ranges if self._end(span) < span.end)
        return sorted({replica.topic for replica in left if replica.tp not in self._failed.reasons})

    def summary(self, mode: str, kind: str) -> dict[str, Any]:
        """Return the summary.

        :param kind: the table's format.
        """
        written = [w for made in self._done for w in made.written]
        files = [f for made in self._done for f in made.files]
        with np.errstate(over="ignore"):
            digest = np.array([w.digest for w in written], np.int64).sum() if written else np.int64(0)
        rows: Counter[TopicPartition] = Counter()
        for one in written:
            rows[TopicPartition(one.topic, one.partition)] += one.rows
        partitions = {
            str(span.replica.tp): {"start": span.start, "end": self._end(span), "rows": rows[span.replica.tp]}
            for span in self.ranges
        }
        return {
            "job": "export",
            "mode": mode,
            "format": kind,
            "topics": sorted({span.replica.topic for span in self.ranges}),
            "manifest_version": max(self.newest.version, self._merging.version),
            "versions": len(self._done),
            "rows": sum(w.rows for w in written),
            "dead_letters": sum(w.bad_rows for w in written),
            "bytes": sum(int(f["bytes"]) for f in files),
            "files": len(files),
            "merged_files": self._merging.merged,
            "offsets": partitions,
            "failed": {str(tp): reason for tp, reason in sorted(self._failed.reasons.items())},
            "topics_failed": self._failed.topics,
            "by_topic": self._by_topic(written),
            "checksum": f"{int(digest) & (2**64 - 1):016x}",
        }

    def _by_topic(self, written: Sequence[WrittenSplit]) -> dict[str, dict[str, Any]]:
        """Return the summary's row for each topic."""
        failed = self._failed.topics
        rows: dict[str, dict[str, Any]] = {
            topic: {"failed": failed.get(topic), "partitions": 0, "rows": 0, "dead_letters": 0}
            for topic in sorted({span.replica.topic for span in self.ranges} | set(failed))
        }
        for span in self.ranges:
            rows[span.replica.topic]["partitions"] += 1
            rows[span.replica.topic]["topic_id"] = span.replica.topic_id
        for split in written:
            rows[split.topic]["rows"] += split.rows
            rows[split.topic]["dead_letters"] += split.bad_rows
        return rows

    def _end(self, span: Range) -> int:
        """Return the offset below which a partition is committed."""
        known = self.newest.topics.get(span.replica.topic)
        if known is None or known.topic_id != span.replica.topic_id:
            return span.start
        return max(span.start, known.next_offsets.get(span.replica.partition, span.start))
