"""The small text files of a log directory, byte for byte (facts §12): encoding and decoding, nothing else.

All decoders raise CorruptData, which says what is wrong; the caller adds the file's name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.log.leader_epochs import EpochEntry
from logyard.broker.model import ZERO_TOPIC_ID, TopicId, TopicPartition, topic_id_from_text, topic_id_text

CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_UNESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of a checkpoint with one offset per partition (high watermarks, recovery points, log starts,
    cleaner)."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Parse what `encode_offsets` wrote; a file that is empty or has only a version has no entries."""
    offsets: dict[TopicPartition, int] = {}
    for words in _counted_lines(data, words_per_line=3):
        topic, partition, offset = words
        offsets[TopicPartition(topic, _integer(partition))] = _integer(offset)
    return offsets


def encode_epochs(entries: Sequence[EpochEntry]) -> bytes:
    """Return the bytes of a `leader-epoch-checkpoint`."""
    lines = [f"{entry.epoch} {entry.start_offset}\n" for entry in entries]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_epochs(data: bytes) -> list[EpochEntry]:
    """Parse a `leader-epoch-checkpoint`; raises CorruptData if the entries do not increase."""
    entries: list[EpochEntry] = []
    for epoch, start in _counted_lines(data, words_per_line=2):
        entry = EpochEntry(_integer(epoch), _integer(start))
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            raise CorruptData(f"epoch {entry.epoch} at {entry.start_offset} follows {entries[-1]}")
        entries.append(entry)
    return entries


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    """Return the bytes of `partition.metadata` (no newline at its end)."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> TopicId:
    """Return the topic id in `partition.metadata`."""
    pairs = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    if pairs.get("version") != "0":
        raise CorruptData(f"version {pairs.get('version')!r}, 0 is expected")
    try:
        topic_id = topic_id_from_text(pairs.get("topic_id", ""))
    except ValueError as error:
        raise CorruptData(str(error)) from None
    if topic_id == ZERO_TOPIC_ID:
        raise CorruptData("the topic id is the zero id")
    return topic_id


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """The content of `meta.properties`: the broker and cluster that own the directory. Unknown keys are kept."""

    broker_id: int | None
    cluster_id: str | None
    extra: Mapping[str, str] = field(default_factory=dict)

    def check(self, cluster_id: str, broker_id: int) -> None:
        """Raise LogyardError if it is another broker's or cluster's (facts §2: InconsistentClusterId,
        InconsistentBrokerId)."""
        if self.cluster_id not in (None, cluster_id):
            raise LogyardError(
                f"the log directories belong to cluster {self.cluster_id}, ZooKeeper to {cluster_id}: "
                "check zookeeper.connect and log.dirs"
            )
        if self.broker_id not in (None, broker_id):
            raise LogyardError(
                f"the log directories belong to broker {self.broker_id}, broker.id is {broker_id}: "
                "check broker.id and log.dirs"
            )


def encode_meta_properties(identity: DirectoryIdentity, now_ms: int) -> bytes:
    """Return the bytes of `meta.properties` as Java's Properties writes it, with its comment lines (UTC)."""
    lines = ["#", f"#{_java_date(now_ms)}", "version=0"]
    if identity.broker_id is not None:
        lines.append(f"broker.id={identity.broker_id}")
    if identity.cluster_id is not None:
        lines.append(f"cluster.id={_escape(identity.cluster_id)}")
    lines.extend(f"{_escape(key)}={_escape(value)}" for key, value in identity.extra.items())
    return "".join(line + "\n" for line in lines).encode()


def decode_meta_properties(data: bytes) -> DirectoryIdentity:
    """Parse `meta.properties`; raises CorruptData for a version other than 0 (1 is KRaft's) or a broker.id that is no
    number.

    As in Kafka, an empty or unreadable file belongs to nobody, and is written again.
    """
    pairs: dict[str, str] = {}
    for raw in data.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        if line and line[0] not in "#!":
            key, found, value = re.sub(r"\s*[=:]\s*", "=", line, count=1).partition("=")
            if found:
                pairs[_unescape(key)] = _unescape(value)
    version = pairs.pop("version", "0")
    if version != "0":
        raise CorruptData(f"version {version!r}, 0 is expected (1 belongs to a KRaft broker)")
    broker_id = pairs.pop("broker.id", None)
    cluster_id = pairs.pop("cluster.id", None)
    return DirectoryIdentity(None if broker_id is None else _integer(broker_id), cluster_id, pairs)


def _counted_lines(data: bytes, words_per_line: int) -> Iterable[list[str]]:
    """Yield the words of each entry line after checking version and count."""
    lines = _text(data).splitlines()
    if len(lines) < 2:
        if lines and lines[0].strip() != "0":
            raise CorruptData(f"version {lines[0]!r}, 0 is expected")
        return
    if lines[0].strip() != "0":
        raise CorruptData(f"version {lines[0]!r}, 0 is expected")
    expected = _integer(lines[1])
    entries = [line.split() for line in lines[2:]]
    if len(entries) != expected:
        raise CorruptData(f"{len(entries)} entries, the file says {expected}")
    for words in entries:
        if len(words) != words_per_line:
            raise CorruptData(f"line {' '.join(words)!r}: {words_per_line} words are expected")
        yield words


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptData("not UTF-8 text") from None


def _integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise CorruptData(f"{word!r}: a number is expected") from None


def _java_date(now_ms: int) -> str:
    """`Sat Nov 21 09:43:33 UTC 2026`: the text of java.util.Date, in English whatever the locale."""
    at = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
    return f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at:%d %H:%M:%S} UTC {at.year}"


def _escape(text: str) -> str:
    return re.sub(r"([\\=:#! ])", r"\\\1", text)


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _UNESCAPES.get(escaped, escaped)

    return _ESCAPED.sub(plain, text)
