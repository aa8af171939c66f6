"""An Iceberg catalog in SQLite, and the files of its tables, which can die, forget to answer or stop at any request.

`at(n, act)` has `act` called at request or file number n: `die_before`, `die_after`, `lose_answer`, `never_arrive`, or
a function of the test, which is called before it. `at_commit(act)` waits for the next commit of a table. An export
loads both by their names, `py-catalog-impl` and `py-io-impl`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

Answer = TypeVar("Answer")
COMMIT = "commit_table"


class Died(BaseException):
    """The process dies here."""


class NoAnswer(Exception):
    """The connection is gone."""


class _Plan:
    """What happens when, in this process."""

    count = 0
    act: Callable[[], None] | None = None
    number = -1
    name = ""


def quiet() -> None:
    """Answer every request from now on."""
    _Plan.count, _Plan.act, _Plan.number, _Plan.name = 0, None, -1, ""


def at(request: int, act: Callable[[], None]) -> None:
    """Count requests from 0 again, and act at this one."""
    quiet()
    _Plan.act, _Plan.number = act, request


def at_commit(act: Callable[[], None]) -> None:
    """Act at the next commit of a table."""
    quiet()
    _Plan.act, _Plan.name = act, COMMIT


def counted() -> int:
    return _Plan.count


def die_before() -> None:
    raise Died


def die_after() -> None:
    raise Died


def never_arrive() -> None:
    raise NoAnswer("connection reset")


def lose_answer() -> None:
    raise NoAnswer("time-out")


def repeat() -> None:
    """Carry the request out twice, and answer what the second one got."""


def _request(name: str, work: Callable[[], Answer]) -> Answer:
    number, _Plan.count = _Plan.count, _Plan.count + 1
    act = _Plan.act
    if act is None or (number != _Plan.number and name != _Plan.name):
        return work()
    _Plan.act = None
    if act in (die_after, lose_answer, repeat):
        answer = work()
        if act is repeat:
            return work()
        act()
        return answer
    act()
    return work()


class FaultyCatalog(SqlCatalog):
    """Requests as a client sends them; those that one of them makes of others here are not counted."""

    def load_table(self, identifier: Any) -> Any:
        return _request("load_table", lambda: super(FaultyCatalog, self).load_table(identifier))

    def create_namespace(self, *given: Any, **named: Any) -> None:
        _request("create_namespace", lambda: super(FaultyCatalog, self).create_namespace(*given, **named))

    def create_table(self, *given: Any, **named: Any) -> Any:
        return _request("create_table", lambda: super(FaultyCatalog, self).create_table(*given, **named))

    def commit_table(self, *given: Any, **named: Any) -> Any:
        return _request(COMMIT, lambda: super(FaultyCatalog, self).commit_table(*given, **named))


class FaultyFiles(PyArrowFileIO):
    """Each new file counts as a request, and each that is deleted."""

    def new_output(self, location: str) -> Any:
        return _request("new_output", lambda: super(FaultyFiles, self).new_output(location))

    def delete(self, location: Any) -> None:
        _request("delete", lambda: super(FaultyFiles, self).delete(location))
