"""`python -m logyard.broker.cleaner.child`: the process that cleans, one request a line on stdin, one answer on stdout.

It ends with its broker: the end of stdin, which comes with the broker's death however it dies, ends it at once, in the
midst of its work too. What it leaves then is a lease's directory, which the broker removes at its next start.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable

from logyard.broker.cleaner import work
from logyard.broker.log.disk import OsDisk

# Cleaning can wait: requests go first where both want the processor.
NICENESS = 10
LOOK_BYTES = 256 << 10


def paced(bytes_per_second: float) -> Callable[[int], None]:
    """Return what sleeps so that no more bytes go through than that, on average."""
    began = time.monotonic()
    done = looked = 0

    def pace(size: int) -> None:
        nonlocal done, looked
        done += size
        if done - looked < min(LOOK_BYTES, bytes_per_second):
            return
        looked = done
        ahead = done / bytes_per_second - (time.monotonic() - began)
        if ahead > 0:
            time.sleep(ahead)

    return pace


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the broker says when
    os.nice(NICENESS)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    disk = OsDisk()
    while True:
        answer = work.answer(json.loads(requests.get()), disk, paced)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _receive(requests: "queue.SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
