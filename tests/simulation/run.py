"""One seed, from the first broker's start to the last comparison.

`python -m tests.simulation.run --seed N --steps M` (make sim) prints what was covered, and fails on a broken promise,
and in a long run on anything that never happened.
"""

import argparse
import asyncio
import gc
import random
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.log.segment import cache
from tests.simulation.faults import KINDS
from tests.simulation.ledger import BrokenPromise, Ledger
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.plan import plan
from tests.simulation.scenario import Scenario
from tests.simulation.trace import Trace

LONG_RUN_STEPS = 2000
# A history makes little garbage in circles, and looking for it over and over costs a twentieth of the time.
GC_THRESHOLDS = (50_000, 20, 100)
# Few, as all is small here: else hardly anything would have to be looked up.
POSITIONS_KEPT = 2

EXPECTED_IN_A_LONG_RUN = (
    "controller elected",
    "leader elected",
    "leader lost",
    "ISR grew",
    "ISR shrank",
    "log truncated",
    "blocking work cut",
    "log cut under a look-up",
    "session expired by silence",
    "produce: NONE",
    "produce: LinkError",
    "produce: NOT_ENOUGH_REPLICAS",
    "produce: NOT_LEADER_OR_FOLLOWER",
    "produce: REQUEST_TIMED_OUT",
    "produce: UNKNOWN_TOPIC_OR_PARTITION",
    "fetch: NONE",
    "fetch: NOT_LEADER_OR_FOLLOWER",
    "commit: NONE",
    "commit: NOT_COORDINATOR",
    "join: NONE",
    "sync: NONE",
    "heartbeat: NONE",
    "heartbeat: REBALANCE_IN_PROGRESS",
    "member: silent",
    "member expired",
    "fetch offsets: NONE",
    "init transactions: NONE",
    "add partitions: NONE",
    "transactional produce: NONE",
    "offsets in txn: NONE",
    "end txn: NONE",
    "end txn: PRODUCER_FENCED",
    "transfers: COMMITTED",
    "transfers: ABORTED",
    "transfers: UNKNOWN",
    "teller: silent",
    "bank: sums",
    "walk: reads",
    "delete records: NONE",
    "alter configs: NONE",
    "create topic: NONE",
    "delete topic: NONE",
    "reassign: NONE",
    "elect leaders: NONE",
    *(f"fault: {kind}" for kind in KINDS),
)


@dataclass
class Result:
    """What a run came to."""

    seed: int
    steps: int
    trace: Trace
    ledger: Ledger
    virtual_s: float
    transaction_version: int = 0

    @property
    def digest(self) -> str:
        return self.trace.digest

    def missing(self) -> list[str]:
        """What a long run should have seen and did not."""
        expected = set(EXPECTED_IN_A_LONG_RUN)
        if self.transaction_version >= 2:  # then a Produce request adds its partitions
            expected.discard("add partitions: NONE")
        return [what for what in EXPECTED_IN_A_LONG_RUN if what in expected and not self.trace.counts[what]]


def run_seed(
    seed: int, steps: int, *, show: bool = False, beyond: bool = False, transaction_version: int = 0
) -> Result:
    """Run one seed; raises BrokenPromise, with the seed in it.

    `show` prints the story while it happens; `beyond` leaves the faults' budget: then nothing is promised but that
    replicas agree. `transaction_version`: which level of that feature is finalized.
    """
    trace = Trace(show)
    chance = random.Random(f"{seed} world")
    network = Network(random.Random(chance.getrandbits(64)), trace)
    loop = SimLoop(network, random.Random(chance.getrandbits(64)), trace)
    trace.now = loop.time
    configured, thresholds, positions = structlog.get_config(), gc.get_threshold(), cache.POSITIONS_KEPT
    gc.set_threshold(*GC_THRESHOLDS)
    cache.POSITIONS_KEPT = POSITIONS_KEPT
    trace.capture_logs()
    loop.set_exception_handler(lambda _loop, context: _unexpected(trace, context))
    tell, tasks.failed = tasks.failed, lambda name, error, again_in_s=None: _failed(trace, name, error)
    asyncio.set_event_loop(loop)
    scenario: Scenario | None = None
    begun = loop.now
    try:
        drawn = plan(seed, beyond=beyond, transaction_version=transaction_version)
        scenario = Scenario(seed, steps, drawn, trace, loop, network)
        loop.run_until_complete(scenario.run())
        return Result(seed, steps, trace, scenario.ledger, loop.now - begun, transaction_version)
    except Exception as error:
        tail = "\n".join(list(trace.lines)[-60:])
        raise BrokenPromise(f"seed {seed}, {steps} steps: {error}\n{tail}") from error
    finally:
        trace.over = True
        tasks.failed = tell
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if scenario is not None:
                scenario.bury()
            asyncio.set_event_loop(None)
            loop.close()
            tasks.forget(loop)
        structlog.configure(**configured)
        gc.set_threshold(*thresholds)
        cache.POSITIONS_KEPT = positions
        gc.collect()  # the whole cluster


def _unexpected(trace: Trace, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if trace.over or not isinstance(error, Exception):
        return  # what is buried has nothing to say, and a stopped machine's last breath is no mistake
    trace.mistake(f"{context.get('message')}: {error!r} {context.get('future') or context.get('handle')}")


def _failed(trace: Trace, name: str, error: BaseException) -> None:
    """What a task did not expect would be logged and tried again: here it is a mistake."""
    if not trace.over and isinstance(error, Exception):
        trace.mistake(f"task {name}: {error!r}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one seed of the simulator.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=LONG_RUN_STEPS)
    parser.add_argument("--show", action="store_true", help="print the story while it happens")
    parser.add_argument("--beyond", action="store_true", help="lose power anywhere: only divergence is an error then")
    parser.add_argument("--transaction-version", type=int, default=0, help="the finalized level of that feature")
    options = parser.parse_args(arguments)
    version = options.transaction_version
    try:
        result = run_seed(
            options.seed, options.steps, show=options.show, beyond=options.beyond, transaction_version=version
        )
    except BrokenPromise as broken:
        print(f"FAILED: {broken}", file=sys.stderr)
        return 1
    for what, number in sorted(result.trace.counts.items()):
        print(f"{number:8} {what}")
    print(
        f"seed {result.seed}: {result.steps} steps, {result.virtual_s:.0f} virtual seconds, "
        f"{result.ledger.writes} acknowledged writes, digest {result.digest}"
    )
    if options.steps >= LONG_RUN_STEPS and not options.beyond and (missing := result.missing()):
        print(f"FAILED: never happened: {', '.join(missing)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
