"""Has kafka-python 3.0.12 hear what a broker says last.

If an answer and the end of the connection arrive together, as they may on a loaded machine, it throws the answer away
and reports a lost connection. So a refused login looks like a broker that does not answer.
"""

from typing import Any, TypeVar

T = TypeVar("T")


def hear_last_words(transport: T) -> T:
    """Have a transport of kafka-python deliver what it has received before it reports the connection's end."""
    receive = transport._sock_recv  # type: ignore[attr-defined]
    problems: list[Exception] = []

    def received() -> tuple[bytes, Any]:
        if problems:
            return b"", problems[0]
        data, problem = receive()
        if data and problem is not None:
            problems.append(problem)
            return data, None
        return data, problem

    transport._sock_recv = received  # type: ignore[attr-defined]
    return transport
