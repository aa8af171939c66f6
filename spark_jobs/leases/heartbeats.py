"""Heartbeats: the driver renews a job's leases while it runs, whichever of its tasks read."""

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.command import say
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.leases.client import Lease

# Codes of temporary errors: the broker restarts, swaps segments, or does not answer for a while.
PASSING = ("unreachable", "commit_in_progress", "starting")
BROKERS_AT_ONCE = 16


class Heartbeats:
    """A thread that renews leases every third of their time to live, until closed.

    `leases` is read at every beat: a job starts the heartbeats first and appends leases as it takes them. A lost lease
    is in `lost` with the broker's reason, which a job checks before it commits. Brokers are asked concurrently, so that
    one that hangs does not cost the others' leases.
    """

    def __init__(self, leases: list[Lease], ttl_ms: int = 60_000) -> None:
        self._leases = leases
        self._interval_s = ttl_ms / 3000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-heartbeats", daemon=True)
        self.lost: dict[str, str] = {}
        # Since when (time.monotonic) the broker of a lease does not answer, and the error.
        self.silent: dict[str, tuple[float, str]] = {}

    def __enter__(self) -> "Heartbeats":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(timeout=15)

    def _run(self) -> None:
        due = time.monotonic() + self._interval_s
        while not self._stop.wait(max(due - time.monotonic(), 0.0)):
            # From where this beat begins: one that waits for a broker, or for thousands of leases, takes long itself.
            due = time.monotonic() + self._interval_s
            try:
                self.beat()
            except Exception as error:  # try again at the next beat: without heartbeats every lease is lost
                say(f"leases: a heartbeat failed: {type(error).__name__}: {error}")

    def beat(self) -> None:
        """Renew every lease once; errors in PASSING are left to the next beat."""
        by_broker: dict[tuple[int, str], list[Lease]] = defaultdict(list)
        for lease in list(self._leases):
            if lease.lease_id not in self.lost:
                by_broker[lease.broker.broker_id, lease.broker.address].append(lease)
        if len(by_broker) < 2:
            for leases in by_broker.values():
                self._beat_one(leases)
            return
        with ThreadPoolExecutor(min(len(by_broker), BROKERS_AT_ONCE), "lease-heartbeats") as pool:
            list(pool.map(self._beat_one, by_broker.values()))

    def unanswered(self) -> dict[str, str]:
        """Return the leases whose brokers do not answer, and why."""
        # Of a copy: the thread adds and removes meanwhile.
        return {lease_id: reason for lease_id, (_, reason) in dict(self.silent).items()}

    def _beat_one(self, leases: Sequence[Lease]) -> None:
        """Renew the leases of one broker; if it does not answer, the rest of them wait for the next beat."""
        for number, lease in enumerate(leases):
            if self._stop.is_set():
                return
            try:
                lease.heartbeat()
            except LogyardError as error:
                code = error.code if isinstance(error, LeaseError) else ""
                if code not in PASSING:
                    self.lost[lease.lease_id] = str(error)
                elif code == "unreachable":
                    for waiting in leases[number:]:
                        self.silent.setdefault(waiting.lease_id, (time.monotonic(), str(error)))
                    return
            self.silent.pop(lease.lease_id, None)
