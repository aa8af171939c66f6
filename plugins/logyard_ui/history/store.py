"""The history in Airflow's database: a table of its own, with one row for each cluster and slot.

The row's key says who takes a sample: of several processes and hosts whose slot has come, one can insert it. So nothing
is written twice, and nobody needs to know of the others. Every call blocks.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, String, Table, delete, insert, select, update
from sqlalchemy.dialects.mysql import MEDIUMBLOB
from sqlalchemy.exc import DBAPIError, IntegrityError

from logyard.plugins.logyard_ui.history.sample import ALL, Only, Sample, pack, unpack
from logyard.plugins.logyard_ui.history.slots import TIERS, surplus

# Not Airflow's metadata: its migrations know nothing of this table, and do not touch it.
_METADATA = MetaData()
SAMPLES = Table(
    "logyard_history",
    _METADATA,
    Column("conn_id", String(250), primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary().with_variant(MEDIUMBLOB(), "mysql"), nullable=True),
)
_DELETED_AT_ONCE, _READ_AT_ONCE = 200, 50

Sessions = Callable[[], AbstractContextManager[Any]]
"""Opens a session that is committed at the end of its block."""


class HistoryStore:
    """Samples by connection and slot."""

    def __init__(self, open_session: Sessions) -> None:
        self._open_session = open_session

    def prepare(self) -> None:
        """Make the table, unless it is there. Raises DBAPIError: the user of the database may make no table."""
        for last in (False, True):
            try:
                with self._open_session() as session:
                    _METADATA.create_all(session.connection(), checkfirst=True)
                return
            except DBAPIError:
                if last:
                    raise  # and not another process that made it in the same moment

    def claim(self, conn_id: str, slot: int, first: int | None = None) -> bool:
        """Whether this process takes the sample: nobody has claimed that slot, nor another since `first`."""
        try:
            with self._open_session() as session:
                if first is not None and first < slot:
                    since = (SAMPLES.c.conn_id == conn_id) & (SAMPLES.c.slot >= first) & (SAMPLES.c.slot < slot)
                    if session.scalar(select(SAMPLES.c.slot).where(since).limit(1)) is not None:
                        return False
                session.execute(insert(SAMPLES).values(conn_id=conn_id, slot=slot, data=None))
        except IntegrityError:
            return False
        return True

    def write(self, conn_id: str, slot: int, sample: Sample) -> None:
        """The sample of a slot that was claimed, also if the claim was dropped: the cluster may have been slow."""
        data = pack(sample)
        with self._open_session() as session:
            here = (SAMPLES.c.conn_id == conn_id) & (SAMPLES.c.slot == slot)
            if session.execute(update(SAMPLES).where(here).values(data=data)).rowcount == 0:
                session.execute(insert(SAMPLES).values(conn_id=conn_id, slot=slot, data=data))

    def samples(self, conn_id: str, first: int, width: int = 1, only: Only = ALL) -> Iterator[tuple[int, Sample]]:
        """The samples from a slot on, in order: of each window of so many slots the first one, and the last of all.

        Few are held at a time, with `only` what is asked for: all of a large cluster would fill the memory. Slots
        without a sample, and samples of later versions, are left out.
        """
        wanted = (SAMPLES.c.conn_id == conn_id) & (SAMPLES.c.slot >= first) & SAMPLES.c.data.is_not(None)
        with self._open_session() as session:
            slots = sorted(int(slot) for slot in session.scalars(select(SAMPLES.c.slot).where(wanted)))
        chosen = sorted({*{slot // width: slot for slot in reversed(slots)}.values(), *slots[-1:]})
        for few in _portions(chosen, _READ_AT_ONCE):
            rows = select(SAMPLES.c.slot, SAMPLES.c.data).where(wanted, SAMPLES.c.slot.in_(few))
            with self._open_session() as session:
                found = sorted((int(slot), bytes(data)) for slot, data in session.execute(rows))
            for slot, data in found:
                sample = unpack(data, only)
                if sample is not None:
                    yield slot, sample

    def thin_out(self, conn_id: str, now: int) -> int:
        """Drop what is too old, or closer together than its age asks for; returns how many rows."""
        with self._open_session() as session:
            of = SAMPLES.c.conn_id == conn_id
            # A claim whose sample failed is worth nothing as soon as another slot has come.
            held = [
                int(slot) for slot in session.scalars(select(SAMPLES.c.slot).where(of, SAMPLES.c.data.is_not(None)))
            ]
            empty = of & SAMPLES.c.data.is_(None) & (SAMPLES.c.slot < now - 5)
            dropped = surplus(held, now)
            session.execute(delete(SAMPLES).where(empty))
            for few in _portions(dropped, _DELETED_AT_ONCE):
                session.execute(delete(SAMPLES).where(of, SAMPLES.c.slot.in_(few)))
        return len(dropped)

    def forget(self, now: int) -> None:
        """Drop what is older than everything that is kept, also of connections that are gone."""
        oldest = now - max(back for back, _ in TIERS)
        with self._open_session() as session:
            session.execute(delete(SAMPLES).where(SAMPLES.c.slot < oldest))


def _portions(slots: list[int], most: int) -> Iterable[list[int]]:
    return (slots[first : first + most] for first in range(0, len(slots), most))
