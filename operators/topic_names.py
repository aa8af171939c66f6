"""A name that an earlier topic still has: it is being deleted, which ends by itself."""

import logging
from collections.abc import Callable
from typing import TypeVar

from logyard.admin.ports import Pause
from logyard.admin.topics.changes import NameNotFree
from logyard.operators.triggers.base import WaitFailed

T = TypeVar("T")
_log = logging.getLogger(__name__)


def once_free(ensure: Callable[[bool], T], pause: Pause, poll_interval_s: float, timeout_s: float) -> T:
    """What `ensure` returns when it no longer raises NameNotFree; it is told whether it has raised that before.

    Raises WaitFailed.
    """
    deadline, waited = pause.monotonic() + timeout_s, False
    while True:
        try:
            return ensure(waited)
        except NameNotFree as taken:
            if pause.monotonic() >= deadline:
                raise WaitFailed(f"gave up waiting: {taken}") from None
            if not waited:
                _log.info("waiting: %s", taken)
        waited = True
        pause.sleep(poll_interval_s)
