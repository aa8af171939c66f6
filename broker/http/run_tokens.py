"""The tokens of runs: what a job's tasks show instead of a user's password (docs/leases.md, Tokens of runs).

Rule 1: a token is for one broker, one run, one topic and one purpose. It is `lyr1.RUN.PAYLOAD.MAC`: the MAC is made
        with a secret of the run that only this broker has, so that ending the run ends all its tokens at once.
Rule 2: a run ends with its time to live, unless its owner renews it, or the work on its leases does; at last LIFE_S
        after it began. In a living broker elapsed time counts, whatever the wall clock does. A restarted broker goes by
        the wall clock, but never beyond the time to live.
Rule 3: a run belongs to the principal that began it, and its tokens are that principal's: they never allow more than
        its ACLs do. A token begins no run. It is also for parts of its run, whose ids begin with the run's and a slash.
"""

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.clock import Clock
from logyard.broker.leases.book import LeaseError, Purpose

PREFIX = "lyr1."
TOKEN_CHARACTERS_MAX = 4096
TTL_MS_MIN = 60_000
TTL_MS_MAX = 24 * 3600_000
TTL_MS_DEFAULT = 600_000
LIFE_S = 7 * 24 * 3600
# A run that is only touched is written this often in its time to live.
SAVES_OF_A_LIFE = 4
RUNS_MAX = 1024
RUNS_OF_ONE_MAX = 128


@dataclass(frozen=True, slots=True)
class RunToken:
    """What a token allows: the tasks of this run, on one topic, for one purpose."""

    owner: str
    run_id: str
    topic: str
    purpose: Purpose

    def is_for_run(self, run_id: str) -> bool:
        """Whether it is for this run: its own, or a part of it."""
        return run_id == self.run_id or run_id.startswith(f"{self.run_id}/")


@dataclass(slots=True)
class Run:
    """One living run. Times with `_s` are of the monotonic clock, `expires_ms` is for the file and for people."""

    key: str
    secret: bytes = field(repr=False)
    owner: str
    run_id: str
    ttl_ms: int
    expires_ms: int
    due_s: float
    end_s: float
    saved_s: float = 0.0


class RunTokens:
    """All runs of one broker. `draw` returns so many random bytes."""

    def __init__(self, clock: Clock, draw: Callable[[int], bytes]) -> None:
        self._clock = clock
        self._draw = draw
        self._runs: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, owner: str, run_id: str, ttl_ms: int) -> Run:
        """Begin a run, or renew it if it lives; raises LeaseError `too_many_runs`."""
        self._expire()
        known = self._of(owner, run_id)
        if known is None:
            mine = sum(run.owner == owner for run in self._runs.values())
            if len(self._runs) >= RUNS_MAX or mine >= RUNS_OF_ONE_MAX:
                raise LeaseError("too_many_runs", 429, f"{mine} runs of {owner} have tokens: end them, or wait")
            now_s = self._clock.monotonic()
            key = self._draw(16).hex()
            known = self._runs[key] = Run(key, self._draw(32), owner, run_id, ttl_ms, 0, now_s, now_s + LIFE_S)
        self._extend(known, ttl_ms)
        return known

    def renew(self, owner: str, run_id: str, ttl_ms: int | None) -> Run:
        """Renew a run, for as long as before if no time is given; raises LeaseError `unknown_run`."""
        self._expire()
        run = self._of(owner, run_id)
        if run is None:
            raise LeaseError("unknown_run", 404, f"{owner} has no run {run_id!r} here, or it has ended")
        self._extend(run, run.ttl_ms if ttl_ms is None else ttl_ms)
        return run

    def touch(self, token: RunToken) -> bool:
        """Renew a token's run, as its leases are worked with; returns whether that has to be kept in the file again."""
        run = self._of(token.owner, token.run_id)
        if run is None:
            return False
        self._extend(run, run.ttl_ms)
        return run.due_s - run.saved_s > run.ttl_ms / 1000 / SAVES_OF_A_LIFE

    def end(self, owner: str, run_id: str) -> bool:
        """End a run with all its tokens; returns whether it lived."""
        run = self._of(owner, run_id)
        return run is not None and self._runs.pop(run.key, None) is not None

    def token(self, run: Run, topic: str, purpose: Purpose) -> str:
        """Return the run's token for a topic and a purpose; it is always the same."""
        payload = base64.urlsafe_b64encode(json.dumps([topic, purpose.value]).encode()).decode().rstrip("=")
        signed = f"{PREFIX}{run.key}.{payload}"
        return f"{signed}.{_mac(run, signed)}"

    def find(self, token: str) -> RunToken | None:
        """Return what a token allows; None if it is none of this broker's, or its run has ended."""
        signed, _, mac = token.rpartition(".")
        key, _, payload = signed.removeprefix(PREFIX).partition(".")
        run = self._runs.get(key)
        if run is None or not signed.startswith(PREFIX) or len(token) > TOKEN_CHARACTERS_MAX:
            return None
        if not hmac.compare_digest(_mac(run, signed).encode(), mac.encode()):
            return None
        if self._clock.monotonic() >= run.due_s:
            return None
        topic, purpose = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return RunToken(run.owner, run.run_id, topic, Purpose(purpose))

    # -- what is kept over a restart

    def rows(self) -> list[dict[str, Any]]:
        """Return the living runs for the file; with their secrets."""
        self._expire()
        wall_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        for run in self._runs.values():
            run.saved_s = run.due_s
        return [
            {
                "key": run.key,
                "secret": run.secret.hex(),
                "owner": run.owner,
                "run_id": run.run_id,
                "ttl_ms": run.ttl_ms,
                "expires_ms": run.expires_ms,
                "end_ms": wall_ms + int((run.end_s - now_s) * 1000),
            }
            for run in self._runs.values()
        ]

    def take(self, rows: list[Mapping[str, Any]]) -> None:
        """Take over the runs of the file; raises ValueError, TypeError, KeyError if one cannot be read."""
        wall_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        for row in rows:
            ttl_ms = min(int(row["ttl_ms"]), TTL_MS_MAX)
            left_ms = min(int(row["expires_ms"]) - wall_ms, ttl_ms)
            end_s = now_s + min((int(row["end_ms"]) - wall_ms) / 1000, LIFE_S)
            if left_ms <= 0 or end_s <= now_s:
                continue
            due_s = min(now_s + left_ms / 1000, end_s)
            secret = bytes.fromhex(row["secret"])
            run = Run(
                str(row["key"]),
                secret,
                str(row["owner"]),
                str(row["run_id"]),
                ttl_ms,
                wall_ms + left_ms,
                due_s,
                end_s,
            )
            self._runs[run.key] = run

    def _of(self, owner: str, run_id: str) -> Run | None:
        return next((run for run in self._runs.values() if (run.owner, run.run_id) == (owner, run_id)), None)

    def _extend(self, run: Run, ttl_ms: int) -> None:
        now_s = self._clock.monotonic()
        run.ttl_ms = ttl_ms
        run.due_s = min(now_s + ttl_ms / 1000, run.end_s)
        run.expires_ms = self._clock.now_ms() + int((run.due_s - now_s) * 1000)

    def _expire(self) -> None:
        now_s = self._clock.monotonic()
        self._runs = {key: run for key, run in self._runs.items() if now_s < run.due_s}


def _mac(run: Run, signed: str) -> str:
    return hmac.digest(run.secret, signed.encode(), "sha256").hex()
