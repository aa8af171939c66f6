"""For all tests: how property tests draw their examples, what becomes of a receive buffer that is let go, how an
exception is logged, what the garbage collector looks at, where compiled loops are kept, what a test that runs again
finds (tests/support/made_anew.py), and what is said of it.

The same code gets the same examples, so that a change is judged by what it changes. `LOGYARD_EXPLORE=1` (make proof)
draws new ones at every run, three times as many. No example fails for having been slow: the machine is shared.

A buffer that a connection lets go is spoilt at once: a handler that keeps a view of it fails its test, as it would
mix up the requests of two clients.

An exception is logged as a plain traceback, as a broker does. By default structlog has rich draw it with the values of
all variables, which takes tenths of a second: of tests that let things fail, nearly all of their time.

What is there when the tests have been collected stays until the end: modules, ten thousand tests and their parameters,
some million objects. The collector looks at none of it again: each of its full rounds would take half a second. The
same goes for what a file of tests leaves behind, if it is much.
"""

import gc
from collections.abc import Generator

import pytest
import structlog
from hypothesis import settings

from logyard.broker.controller import garbage_collector
from logyard.broker.server import receive_buffers
from tests.support import collecting, kept_kernels, made_anew
from tests.support.lengths import IS_PROOF, examples

settings.register_profile("logyard", deadline=None, derandomize=not IS_PROOF, max_examples=examples(100))
settings.load_profile("logyard")
kept_kernels.keep()

_SPOILT = b"\xdb" * receive_buffers.BUFFER_BYTES
_keep = receive_buffers.give_back


def _spoil(buffer: bytearray) -> None:
    buffer[:] = _SPOILT
    _keep(buffer)


receive_buffers.give_back = _spoil
# Hundreds of brokers come and go in one process: what one of them leaves out of searches would keep its files open.
garbage_collector.never_search = lambda: None
_renderer = structlog.get_config()["processors"][-1]
assert isinstance(_renderer, structlog.dev.ConsoleRenderer)
_renderer.exception_formatter = structlog.dev.plain_traceback


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin: hooks of this file are not told of what a whole session shares."""
    config.pluginmanager.register(made_anew)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imports make little garbage and much that stays: it is not searched meanwhile, nor later.

    By the threshold, since a module that is imported switches the collector off and on.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    try:
        return (yield)
    finally:
        collecting.leave_out()
        gc.set_threshold(*thresholds)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """When the last fixture of a file is gone."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            collecting.leave_out_many()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Of a test that ran again (CI's AGAIN=1), show why: it may have failed for a reason that the product has."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"ran again: {report.nodeid}", "_")
        terminalreporter.line(report.longreprtext)
