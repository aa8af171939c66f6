"""`python -m logyard.broker.cleaner.child`: the process that cleans; one request a line on stdin, one answer on stdout.

It ends with its broker: however the broker dies, stdin then ends, and with it the process, even during its work. It
leaves a lease's directory behind, which the broker removes at its next start.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

from logyard.broker.cleaner.engines import Engines
from logyard.broker.cleaner.worker import NEW_RATE, RATE
from logyard.broker.log.disk.real import OsDisk

# Cleaning can wait: requests take precedence if both need the processor.
NICENESS = 10
LOOK_BYTES = 256 << 10
UNBOUND = 1e308


class Pace:
    """Sleeps so that the average rate of bytes stays below a limit, which may change meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Event()
        self.set(UNBOUND)

    def set(self, bytes_per_second: float) -> None:
        """Use this rate from now on, also for a sleep in progress."""
        self._rate, self._began = bytes_per_second, time.monotonic()
        self._done = self._looked = 0
        self._changed.set()

    def __call__(self, size: int) -> None:
        """Count these bytes, and sleep if they came too fast."""
        self._done += size
        if self._done - self._looked < min(LOOK_BYTES, self._rate):
            return
        self._looked = self._done
        self._changed.clear()
        while (ahead := self._done / self._rate - (time.monotonic() - self._began)) > 0:
            if self._changed.wait(ahead):
                return


def main() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole process group; the broker decides when to stop
    os.nice(NICENESS)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pace = Pace()
    threading.Thread(target=_receive, args=(requests, pace), daemon=True).start()
    disk, engines = OsDisk(), Engines(_say)
    while True:
        answer = engines.answer(requests.get(), disk, pace)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _receive(requests: "queue.SimpleQueue[Any]", pace: Pace) -> None:
    status = 1
    try:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            # Set here, not when the work begins: a new rate right after its request must not be lost.
            if NEW_RATE in request:
                pace.set(request[NEW_RATE])
            else:
                pace.set(request.get(RATE) or UNBOUND)
                requests.put(request)
        status = 0
    finally:
        # If this thread fails, the process cannot read its broker's requests, and the broker would wait for ever.
        os._exit(status)


if __name__ == "__main__":
    main()
