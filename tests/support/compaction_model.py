"""A plain model of what compaction keeps, and random histories to hold it against (no code of ours)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.support.batches import HORIZON, TRANSACTIONAL, Batch, Rec, batch, marker

START_MS = 1_600_000_000_000


@dataclass
class Log:
    """Batches in offset order; `transactions` maps a batch's base offset to its transaction, `aborted` are those
    that aborted."""

    batches: list[Batch] = field(default_factory=list)
    transactions: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    markers: dict[int, int] = field(default_factory=dict)
    open_from: int | None = None

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def bytes(self) -> bytes:
        return b"".join(b.encode() for b in self.batches)

    def aborted_index(self) -> list[tuple[int, int, int, int]]:
        """Return (producer, first offset, last offset, LSO) as a transaction index of the original log would hold."""
        rows = []
        ended = {transaction: at for at, transaction in self.markers.items()}
        for at, transaction in self.markers.items():
            if transaction in self.aborted:
                bases = [b for b, t in self.transactions.items() if t == transaction]
                producer = next(b.producer_id for b in self.batches if b.base == at)
                if bases:
                    still_open = [b for b, t in self.transactions.items() if b < at < ended.get(t, self.end)]
                    rows.append((producer, min(bases), at, min(still_open, default=at + 1)))
        return rows


def random_log(rng: random.Random, batches: int) -> Log:
    """Return a history with keys that meet, tombstones, keyless records, every codec, idempotent producers, open,
    committed and aborted transactions."""
    log = Log()
    at = 0
    running: dict[int, int] = {}
    sequences: dict[int, int] = {}
    transaction = 0
    for _ in range(batches):
        now = START_MS + at * 10
        if running and rng.random() < 0.25:
            producer = rng.choice(sorted(running))
            done = running.pop(producer)
            commit = rng.random() < 0.5
            if not commit:
                log.aborted.add(done)
            log.batches.append(marker(at, producer, commit=commit, timestamp=now))
            log.markers[at] = done
            at += 1
            continue
        producer = rng.choice([-1, -1, 1, 2, 3])
        count = rng.randrange(1, 6)
        records = [_random_record(rng, at + i, now + rng.randrange(-5, 6)) for i in range(count)]
        fields = {"codec": rng.choice([0, 0, 1, 2, 3, 4])}
        flags = rng.choice([0, 0, 0x08])
        if producer >= 0:
            fields |= {"producer_id": producer, "producer_epoch": 0, "sequence": sequences.get(producer, 0)}
            sequences[producer] = sequences.get(producer, 0) + count
            if producer in running or rng.random() < 0.6:
                if producer not in running:
                    transaction += 1
                    running[producer] = transaction
                log.transactions[at] = running[producer]
                flags |= TRANSACTIONAL
        if flags & 0x08:
            latest = max(r.timestamp for r in records)
            records = [replace(r, timestamp=latest) for r in records]
        log.batches.append(batch(records, flags=flags, **fields))
        at += count
    open_bases = [b for b, t in log.transactions.items() if t in running.values()]
    log.open_from = min(open_bases, default=None)
    return log


def _random_record(rng: random.Random, offset: int, timestamp: int) -> Rec:
    key = None if rng.random() < 0.05 else b"k%d" % rng.randrange(8)
    value = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(12))
    headers = tuple(("h", rng.choice([None, b"x"])) for _ in range(rng.randrange(2)))
    return Rec(offset, key, value, timestamp, headers)


def kept(log: Log, *, end: int, now_ms: int, cutoff: int) -> tuple[set[int], set[int]]:
    """Return the offsets of the data records and of the markers that stay (a batch's `base_timestamp` is its
    horizon if it has one)."""
    candidates: dict[bytes, tuple[int, bool]] = {}
    above: set[int] = set()
    for b in log.batches:
        if b.flags & 0x20:
            continue
        for r in b.records:
            if b.last >= end:
                above.add(r.offset)
            elif r.key is not None and log.transactions.get(b.base) not in log.aborted:
                expired = r.value is None and _expired(b, r.offset, now_ms, cutoff)
                candidates[r.key] = (r.offset, expired)
    data = {offset for offset, expired in candidates.values() if not expired} | above
    return data, _kept_markers(log, end, now_ms, cutoff)


def _kept_markers(log: Log, end: int, now_ms: int, cutoff: int) -> set[int]:
    stays = set()
    for b in log.batches:
        if not b.flags & 0x20 or not b.records:
            continue
        has_data = any(log.transactions.get(x.base) == log.markers[b.base] for x in log.batches)
        if b.last >= end or has_data or not _expired(b, b.base, now_ms, cutoff):
            stays.add(b.base)
    return stays


def _expired(b: Batch, offset: int, now_ms: int, cutoff: int) -> bool:
    return bool(b.flags & HORIZON) and b.base_timestamp is not None and b.base_timestamp <= now_ms and offset < cutoff


def spent_markers(log: Log, end: int) -> set[int]:
    """Return the markers below `end` none of whose transaction's batches is left."""
    return {
        b.base
        for b in log.batches
        if b.flags & 0x20
        and b.last < end
        and not any(log.transactions.get(x.base) == log.markers.get(b.base) for x in log.batches)
    }


def after(log: Log, batches: Sequence[Batch]) -> Log:
    """Return the log with these batches, the transactions being known from before."""
    bases = {b.base for b in batches}
    transactional = {b.base for b in batches if b.flags & TRANSACTIONAL}
    return Log(
        list(batches),
        {base: t for base, t in log.transactions.items() if base in bases & transactional},
        log.aborted,
        log.markers,
        log.open_from,
    )
