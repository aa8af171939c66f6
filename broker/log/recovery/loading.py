"""Loading many logs, each with its entries in the directory's checkpoints; a damaged log does not stop the others."""

from collections.abc import Callable, Sequence

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import LogyardError
from logyard.broker.log import layout
from logyard.broker.log.directory import LogDirectory
from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.recovery import recovery
from logyard.broker.log.recovery.recovery import Checkpointed, LogState
from logyard.broker.model import TopicPartition


def read_logs(
    directory: LogDirectory,
    group: Sequence[tuple[str, TopicPartition]],
    topic_config: Callable[[str], TopicConfig],
    now_ms: int,
    note: Callable[[str], None],
) -> list[LogState | LogyardError]:
    """Load the logs in these partition directories one after another; for a thread.

    The result for a log that cannot be opened is its error. Raises DiskError: the directory has failed.
    """
    states: list[LogState | LogyardError] = []
    starts, points = directory.offsets[layout.LOG_STARTS], directory.offsets[layout.RECOVERY_POINTS]
    for name, tp in group:
        known = Checkpointed(points.get(tp, 0), starts.get(tp), directory.clean, directory.same_boot)
        path = f"{directory.root}/{name}"
        try:
            state = recovery.load(directory.disk, path, topic_config(tp.topic), known, now_ms=now_ms, note=note)
        except DiskError:
            raise
        except LogyardError as error:
            states.append(error)
        else:
            states.append(state)
    return states
