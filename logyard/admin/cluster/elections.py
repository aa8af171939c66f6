"""Leader elections as kafka-leader-election makes them: its file and its output."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.model import TopicPartition

PREFERRED = "preferred"
UNCLEAN = "unclean"


class BadElection(LogyardError):
    """A file of partitions is invalid."""


class ElectionClient(Protocol):
    """The call that is needed; `ports.ClusterClient` has it."""

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]: ...


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The result of an election: lines to print, and refusals."""

    lines: tuple[str, ...]
    refused: Mapping[TopicPartition, ApiError]


def elect(client: ElectionClient, partitions: Sequence[TopicPartition] | None, kind: str) -> ElectionResult:
    """Elect leaders (None: of all partitions that need it) and sort the answers. Raises ApiError,
    ClusterUnreachable."""
    answers = client.elect_leaders(partitions, unclean=kind == UNCLEAN)
    done = [tp for tp, problem in sorted(answers.items()) if problem is None]
    idle = [tp for tp, problem in sorted(answers.items()) if _is_needless(problem)]
    refused = {tp: p for tp, p in sorted(answers.items()) if p is not None and not _is_needless(p)}
    lines = []
    if done:
        lines.append(f"Successfully completed leader election ({kind.upper()}) for partitions {_names(done)}")
    if idle:
        lines.append(f"Valid replica already elected for partitions {_names(idle)}")
    lines += [
        f"Error completing leader election ({kind.upper()}) for partition: {tp}: {_java_name(problem.code)}: {problem}"
        for tp, problem in refused.items()
    ]
    return ElectionResult(tuple(lines), refused)


def parse_partitions(text: str) -> list[TopicPartition]:
    """Read {"partitions":[{"topic":T,"partition":P}]}. Raises BadElection."""
    try:
        entries = json.loads(text)["partitions"]
        found = [TopicPartition(entry["topic"], entry["partition"]) for entry in entries]
        if not all(isinstance(tp.topic, str) and type(tp.partition) is int for tp in found):
            raise ValueError("a topic is a text and a partition a number")
    except (KeyError, TypeError, ValueError, RecursionError):
        raise BadElection("""{"partitions":[{"topic":"flights","partition":0}]} is expected in the file""") from None
    repeated = sorted(tp for tp, count in Counter(found).items() if count > 1)
    if repeated:
        raise BadElection(f"Replica election data contains duplicate partitions: {_names(repeated)}")
    return found


def _is_needless(problem: ApiError | None) -> bool:
    return problem is not None and problem.code is ErrorCode.ELECTION_NOT_NEEDED


def _java_name(code: ErrorCode) -> str:
    """Return the name of an error in Kafka's tool: that of its Java class."""
    words = code.name.removesuffix("_EXCEPTION").split("_")
    return f"org.apache.kafka.common.errors.{''.join(word.capitalize() for word in words)}Exception"


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
