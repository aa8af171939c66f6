"""What brokers hold, asked one by one: where one does not tell, only its bytes are missing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.admin.cluster.snapshot import DirectorySpace, LogDirs, ReplicaSize
from logyard.broker.errors import LogyardError


class DirectoriesClient(Protocol):
    """The call that is needed; `ports.ClusterClient` has it."""

    def log_dirs(self, brokers: Sequence[int] | None = None) -> LogDirs: ...


@dataclass(frozen=True, slots=True)
class ToldDirs:
    """What the brokers that answered hold. `untold`: why the others' bytes are not known, by broker."""

    dirs: LogDirs
    untold: Mapping[int, str]


def told_dirs(
    client: DirectoriesClient,
    brokers: Iterable[int],
    silent: Mapping[int, str] = {},
    is_late: Callable[[], bool] = lambda: False,
) -> ToldDirs:
    """Ask the brokers one after the other.

    :param silent: brokers that gave no answer before, and why: they are not asked.
    :param is_late: whether the time is over: then no further one is asked.
    Raises the first broker's error where some were asked and none tells: ClusterUnreachable, ApiError.
    """
    replicas: list[ReplicaSize] = []
    directories: list[DirectorySpace] = []
    untold: dict[int, str] = {}
    first: LogyardError | None = None
    told = False
    for broker in brokers:
        if broker in silent:
            untold[broker] = silent[broker]
        elif is_late():
            untold[broker] = "not asked: the others took the whole time"
        else:
            try:
                found = client.log_dirs([broker])
            except LogyardError as problem:
                untold[broker] = str(problem)
                first = first or problem
                continue
            told = True
            replicas += found.replicas
            directories += found.directories
    if first is not None and not told:
        raise first
    return ToldDirs(LogDirs(tuple(replicas), tuple(directories)), untold)
