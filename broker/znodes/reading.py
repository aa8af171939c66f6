"""Reading many znodes where one that ZooKeeper does not let us read must not cost the others."""

from collections.abc import Sequence

from logyard.broker.errors import LogyardError
from logyard.broker.znodes.ops import SessionExpired, Znode, ZooKeeper


async def read_each(zk: ZooKeeper, paths: Sequence[str]) -> list[Znode | LogyardError | None]:
    """Read as `ZooKeeper.read` does, all at once; in the place of a znode that cannot be read is its error.

    Of a read that is refused the halves are read, and theirs. Raises SessionExpired.
    """
    try:
        return list(await zk.read(paths))
    except SessionExpired:
        raise
    except LogyardError as error:
        if len(paths) <= 1:
            return [error for _ in paths]
    half = len(paths) // 2
    return await read_each(zk, paths[:half]) + await read_each(zk, paths[half:])
