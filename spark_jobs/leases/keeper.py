"""The keeper renews the leases of batch reads while Spark works.

Spark plans a read in a Python process that ends after planning. So the plan's leases are handed over, as files in a
directory that only this user can enter, to a thread in the driver's Python: it renews them while Spark has a job, and
ends them when it has had none for IDLE_S. Without that thread (if the source was registered in another way), tasks
renew the leases that they read under, and take another if one is gone (data_source/split_reader.py).
"""

import atexit
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from logyard.login.http import Trust
from logyard.spark_jobs.atomic_file import write_atomically
from logyard.spark_jobs.command import say
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.leases.client import Lease, end_run
from logyard.spark_jobs.leases.heartbeats import Heartbeats

POLL_S = 1.0
IDLE_S = 60.0
# A plan's leases end after this time even if Spark has jobs (a stream never ends); tasks then take new leases.
KEPT_S = 24 * 3600.0
PLANS_AT_ONCE = 16


class Stopped(Exception):
    """Spark was stopped."""


@dataclass
class Kept:
    """The leases of one plan."""

    leases: list[Lease]
    ttl_ms: int
    since: float
    beats: Heartbeats = field(init=False)
    beaten: float = field(init=False)

    def __post_init__(self) -> None:
        self.beats, self.beaten = Heartbeats(self.leases, self.ttl_ms), self.since


def hand_over(directory: str, leases: Sequence[Lease], ttl_ms: int) -> None:
    """Hand leases over to the driver's keeper; never raises, since tasks can take leases themselves."""
    rows = [
        {
            "broker_id": lease.broker.broker_id,
            "address": lease.broker.address,
            "token": lease.broker.token,
            "trust": None if lease.broker.trust is None else asdict(lease.broker.trust),
            "details": {**_needed(lease), "segments": []},
        }
        for lease in leases
    ]
    with suppress(OSError):
        if rows and os.path.isdir(directory):
            write_atomically(
                os.path.join(directory, f"{uuid.uuid4().hex}.json"), json.dumps({"ttl": ttl_ms, "leases": rows})
            )


def _needed(lease: Lease) -> dict[str, Any]:
    names = ("lease_id", "generation", "topic", "partition", "purpose", "leader_epoch", "is_leader")
    known = {name: lease.details[name] for name in (*names, "end_offset", "high_watermark")}
    return {**known, "run_id": lease.details.get("run_id")}


class Keeper:
    """The thread of the driver that renews leases, and the directory where it gets them."""

    def __init__(self, is_working: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        """:param is_working: whether Spark has a job; raises Stopped."""
        self.directory = tempfile.mkdtemp(prefix="logyard-leases-")
        self._is_working, self._now = is_working, now
        self._kept: list[Kept] = []
        self._worked = now()
        self._over = threading.Event()

    def start(self) -> "Keeper":
        threading.Thread(target=self._run, name="lease-keeper", daemon=True).start()
        atexit.register(self.close)
        return self

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                self.look()
            except Stopped:
                self.close()
            except Exception as error:  # try again at the next turn: otherwise every lease is lost
                if self._over.is_set():
                    return  # `close` has deleted the directory meanwhile
                say(f"leases: keeping them failed: {type(error).__name__}: {error}")

    def look(self) -> None:
        """Take over new leases, renew those that are due, end those that are no longer needed; raises Stopped."""
        self._take_in()
        now = self._now()
        if self._is_working():
            self._worked = now
        over: list[Kept] = []
        living: list[Kept] = []
        for kept in self._kept:
            is_over = now - max(kept.since, self._worked) > IDLE_S or now - kept.since > KEPT_S
            (over if is_over else living).append(kept)
        self._kept = living
        # What ends may wait for a broker that does not answer, what lives must not.
        _beat([kept for kept in living if now - kept.beaten >= kept.ttl_ms / 3000], now)
        end_run([lease for kept in over for lease in kept.leases], "the read is over")

    def _take_in(self) -> None:
        for name in sorted(os.listdir(self.directory)):
            path = os.path.join(self.directory, name)
            if not name.endswith(".json"):
                continue
            with open(path, encoding="utf-8") as file:
                text = file.read()
            os.unlink(path)
            told = json.loads(text)
            leases = [Lease.from_json(_broker(row), row["details"]) for row in told["leases"]]
            self._kept.append(Kept(leases, int(told["ttl"]), self._now()))

    def close(self) -> None:
        """End all leases and the thread."""
        self._over.set()
        atexit.unregister(self.close)
        with suppress(Exception):  # leases that cannot be taken over expire
            self._take_in()
        kept, self._kept = self._kept, []
        end_run([lease for one in kept for lease in one.leases], "Spark was stopped")
        shutil.rmtree(self.directory, ignore_errors=True)


def _beat(due: Sequence[Kept], now: float) -> None:
    """Renew the leases of these plans, concurrently: a broker that hangs must not cost other plans their leases."""
    for kept in due:
        kept.beaten = now
    if len(due) < 2:
        for kept in due:
            kept.beats.beat()
        return
    with ThreadPoolExecutor(min(len(due), PLANS_AT_ONCE), "lease-keeper") as pool:
        list(pool.map(lambda kept: kept.beats.beat(), due))


def _broker(row: dict[str, Any]) -> BrokerHttp:
    trust = row.get("trust")
    return BrokerHttp(row["broker_id"], row["address"], row["token"], None if trust is None else Trust(**trust))


_keepers: dict[str, Keeper] = {}


def keeper_of(spark: Any) -> Keeper | None:
    """Return the keeper of a session's context, creating it if there is none; None without a context (Spark
    Connect)."""
    try:
        context = spark.sparkContext
        name = str(context.applicationId)
    except Exception:  # other kinds of sessions raise different errors
        return None
    known = _keepers.get(name)
    if known is None or known._over.is_set():
        known = _keepers[name] = Keeper(lambda: _has_jobs(context)).start()
    return known


def _has_jobs(context: Any) -> bool:
    if context._jsc is None:
        raise Stopped
    return bool(context.statusTracker().getActiveJobsIds())
