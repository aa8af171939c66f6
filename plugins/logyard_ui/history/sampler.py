"""The thread in each API server that takes samples: whose turn it is, the store decides."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from logyard.admin.connector import Connector
from logyard.admin.errors import LogyardError
from logyard.admin.settings import ClusterSettings
from logyard.operators.airflow_names import conf
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.plugins.logyard_ui.history.slots import first_of_turn, slot_of
from logyard.plugins.logyard_ui.history.store import HistoryStore
from logyard.plugins.logyard_ui.history.taking import take

log = logging.getLogger(__name__)

# How often it is looked whether a new slot has come; and after how many slots old samples are thinned out, and those of
# connections that are gone dropped.
LOOK_S, THIN_OUT_SLOTS, FORGET_SLOTS = 5.0, 10, 60
# The wall clock was set where it has gone so much further, or less far, than the one that never goes back. For so long
# after that nothing is dropped: by a clock that is wrong, and is put right soon, all of a history may be too old.
SET_S, KEPT_ALL_S = 300.0, 3600.0

Listing = Callable[[], Mapping[str, ClusterSettings]]


class Sampler:
    """`problem`: why the last round could not be stored or read, for people; empty where it could."""

    def __init__(
        self,
        store: HistoryStore,
        connector: Connector,
        listing: Listing,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._connector, self._listing, self._wall_ms = store, connector, listing, wall_ms
        self._monotonic = monotonic
        self._began_s: float | None = None  # of the clock that never goes back, by the wall clock
        self._kept_until = float("-inf")
        self._took: dict[str, float] = {}
        self._looked: dict[str, int] = {}
        self._last = -1
        # The slots of the last times. A round may take minutes, and no slot in particular is sure to have one.
        self._thinned = self._forgot = -1
        self._prepared = False
        self.problem = ""
        self._said: set[str] = set()

    def start(self) -> None:
        """Begin in a thread that ends with the process."""
        threading.Thread(target=self._run, name="logyard-history", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_S)
            try:
                self.round()
            except Exception as problem:  # a database that is away now is no reason to stop for ever
                self._say(f"the history is not kept: {type(problem).__name__}", problem)

    def _say(self, text: str, problem: Exception) -> None:
        """Once, until a round without any problem: it would be said every minute."""
        if text not in self._said:
            log.warning("%s", text, exc_info=problem)
        self._said.add(text)
        self.problem = text

    def round(self) -> None:
        """Take the samples of this slot that nobody else takes; does nothing where the slot is the last one still."""
        slot = slot_of(self._wall_ms())
        if slot == self._last:
            return
        if self._last < 0:
            self._thinned = self._forgot = slot
        self._last = slot
        if not self._prepared:
            self._store.prepare()
            self._prepared = True
        listed, drops = self._listing(), self._may_drop()
        thins = drops and slot // THIN_OUT_SLOTS != self._thinned // THIN_OUT_SLOTS
        failed = False
        for conn_id, settings in listed.items():
            # Each by itself: what cannot be sampled is thinned out all the same.
            for act in (self._turn, *([self._thin_out] if thins else [])):
                try:
                    act(conn_id, settings)
                except Exception as problem:  # whatever one cluster leads to, the others have their history
                    failed = True
                    self._say(f"the history of {conn_id} is not kept: {type(problem).__name__}", problem)
        if thins:
            self._thinned = slot
        if drops and slot // FORGET_SLOTS != self._forgot // FORGET_SLOTS:
            self._store.forget(slot)
            self._forgot = slot
        self._took = {conn_id: took for conn_id, took in self._took.items() if conn_id in listed}
        self._looked = {conn_id: at for conn_id, at in self._looked.items() if conn_id in listed}
        if failed:
            self._prepared = False  # somebody may have dropped the table, to begin anew
        else:
            self.problem, self._said = "", set()

    def _may_drop(self) -> bool:
        """Whether old samples may be dropped: not just after the wall clock was set."""
        now = self._monotonic()
        began_s = self._wall_ms() / 1000 - now
        if self._began_s is not None and abs(began_s - self._began_s) > SET_S:
            self._kept_until = now + KEPT_ALL_S
        self._began_s = began_s
        return now >= self._kept_until

    def _turn(self, conn_id: str, settings: ClusterSettings) -> None:
        """One connection's sample, if it has not had its turn: a cluster before it in the round may have taken minutes,
        so it is of the slot of now."""
        now = slot_of(self._wall_ms())
        first, looked = first_of_turn(now, self._took.get(conn_id, 0.0)), self._looked.get(conn_id, -1)
        if first <= looked <= now:
            return
        self._looked[conn_id] = now
        if self._store.claim(conn_id, now, first):
            self._sample(conn_id, settings, now)

    def _thin_out(self, conn_id: str, _settings: ClusterSettings) -> None:
        self._store.thin_out(conn_id, self._last)

    def _sample(self, conn_id: str, settings: ClusterSettings, slot: int) -> None:
        """A cluster that does not answer has a gap in its history."""
        begun = self._monotonic()
        try:
            client = self._connector.cluster(settings)
            try:
                sample = take(client)
            finally:
                client.close()
        except LogyardError:
            sample = None
        finally:
            self._took[conn_id] = self._monotonic() - begun
        if sample is not None:
            self._store.write(conn_id, slot, sample)


def is_kept() -> bool:
    """Whether this Airflow keeps histories: `[logyard] page_history`."""
    return conf.getboolean(CONFIG_SECTION, "page_history", fallback=True)
