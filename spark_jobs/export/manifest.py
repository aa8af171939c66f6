"""One version of an export, as its manifest says: offsets, files added and removed.

Offsets only grow. A version repeats every partition's next offset, and names the files that it added and the earlier
files that it removed (merged into larger ones, or replaced by newer rows).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.errors import CorruptData

DATA, DEAD_LETTERS = "data", "dead_letters"


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """How far one topic was exported: its id, the next offset of each partition, the table's schema (DDL), and, if
    known, the leader epoch of each partition's last exported record."""

    topic_id: str | None
    next_offsets: Mapping[int, int]
    schema: str = ""
    epochs: Mapping[int, int] = field(default_factory=dict)

    def after(self, old: "TopicOffsets") -> "TopicOffsets":
        """Return both merged, for the same topic id: the larger offset of each partition, with its epoch."""
        offsets, epochs = dict(old.next_offsets), dict(old.epochs)
        for partition, offset in self.next_offsets.items():
            if offset > offsets.get(partition, -1):
                offsets[partition] = offset
                epochs.pop(partition, None)
                if partition in self.epochs:
                    epochs[partition] = self.epochs[partition]
        return TopicOffsets(self.topic_id, offsets, self.schema or old.schema, epochs)

    def to_json(self) -> dict[str, Any]:
        return {
            "topic_id": self.topic_id,
            "next_offsets": {str(p): o for p, o in sorted(self.next_offsets.items())},
            "schema": self.schema,
            "epochs": {str(p): e for p, e in sorted(self.epochs.items())},
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "TopicOffsets":
        offsets = {int(partition): int(offset) for partition, offset in row["next_offsets"].items()}
        epochs = {int(partition): int(epoch) for partition, epoch in row.get("epochs", {}).items()}
        return cls(row["topic_id"], offsets, str(row.get("schema", "")), epochs)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version; version 0 stands for an empty directory and is never written.

    `layout`: what all runs must agree on (format, partition columns, mode). `removed`: paths of earlier versions' files
    that this version removes.
    """

    version: int = 0
    cluster_id: str | None = None
    run_id: str = ""
    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    files: tuple[Mapping[str, Any], ...] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "cluster_id": self.cluster_id,
            "run_id": self.run_id,
            "topics": {name: topic.to_json() for name, topic in sorted(self.topics.items())},
            "files": [dict(f) for f in self.files],
            "layout": dict(self.layout),
            "removed": list(self.removed),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Manifest":
        """Parse what `to_json` returned; raises CorruptData."""
        try:
            topics = {str(name): TopicOffsets.from_json(topic) for name, topic in row["topics"].items()}
            kept = dict(row.get("layout", {})), tuple(map(str, row.get("removed", ())))
            return cls(int(row["version"]), row["cluster_id"], str(row["run_id"]), topics, tuple(row["files"]), *kept)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptData(f"manifest: {error!r}") from error

    def advanced(
        self,
        *,
        run_id: str,
        cluster_id: str | None = None,
        topics: Mapping[str, TopicOffsets] | None = None,
        files: Sequence[Mapping[str, Any]] = (),
        layout: Mapping[str, Any] | None = None,
        removed: Iterable[str] = (),
    ) -> "Manifest":
        """Return the next version: offsets merged by maximum within the same topic id, replaced for a new one."""
        merged = dict(self.topics)
        for name, new in (topics or {}).items():
            old = merged.get(name)
            merged[name] = new if old is None or old.topic_id != new.topic_id else new.after(old)
        cluster_id = self.cluster_id if cluster_id is None else cluster_id
        layout = self.layout if layout is None else layout
        return Manifest(self.version + 1, cluster_id, run_id, merged, tuple(files), layout, tuple(removed))
