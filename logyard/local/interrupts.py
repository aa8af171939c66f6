"""Ctrl-C, TERM and HUP: the first one stops the work, later ones do not interrupt the clean-up."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """One of SIGNALS arrived; `number` says which. Not a KeyboardInterrupt, which libraries handle themselves."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def raise_once() -> None:
    """From now on the first of SIGNALS raises Interrupted in the main thread, and later ones are ignored.

    The handler stops what was started, in bounded time, so a second Ctrl-C is not needed.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        for other in SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    for number in SIGNALS:
        # Under nohup a hang-up is ignored on purpose.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore SIGNALS in the block, for a clean-up that a Ctrl-C would leave half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
