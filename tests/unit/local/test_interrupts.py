import os
import signal
from collections.abc import Iterator

import pytest

from logyard.local import interrupts


@pytest.fixture(autouse=True)
def _handlers_come_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_raises_and_later_ones_do_not_disturb() -> None:
    interrupts.raise_once()
    with pytest.raises(interrupts.Interrupted) as caught:
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.number == signal.SIGTERM
    for number in interrupts.SIGNALS:
        os.kill(os.getpid(), number)


def test_libraries_do_not_catch_it_as_an_ordinary_error() -> None:
    assert not issubclass(interrupts.Interrupted, (Exception, KeyboardInterrupt))


def test_an_orderly_end_is_not_interrupted_and_then_it_is_again() -> None:
    interrupts.raise_once()
    with interrupts.ignored():
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(interrupts.Interrupted):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_hang_up_stays_ignored_under_nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts.raise_once()
    os.kill(os.getpid(), signal.SIGHUP)
