"""Which engine cleans a log: compiled loops where numba is installed and the log is worth loading them."""

from collections.abc import Callable

from logyard.broker import extras
from logyard.broker.cleaner import cleaning, plain_passes
from logyard.broker.cleaner.leased_log import Json
from logyard.broker.cleaner.passes import Engine
from logyard.broker.cleaner.worker import PLAIN
from logyard.broker.log.disk.port import Disk

# Importing numba takes half a second and 100 MB; plain Python cleans this much in the same time.
SMALL_BYTES = 16 << 20


def is_compiled() -> bool:
    """Return whether the compiled engine is installed."""
    return extras.is_installed("numba")


class Engines:
    """The engines of one process; the first large log loads the compiled one. `say` gets a line where it fails."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._has_compiled = is_compiled()
        self._compiled: Engine | None = None

    def answer(self, request: Json, disk: Disk, throttle: Callable[[int], None]) -> Json:
        """Carry out a request, as `cleaning.answer` does.

        What compiled loops refuse is tried in plain Python, so that both refuse the same logs in the same words.
        """
        if request.get(PLAIN):
            return cleaning.answer(request, disk, throttle)
        engine = self.choose(request.get("lease", {}).get("segments", []))
        answer = cleaning.answer(request, disk, throttle, engine)
        if engine is plain_passes.ENGINE or answer.get("failed") not in ("corrupt", "error"):
            return answer
        plain = cleaning.answer(request, disk, throttle)
        if answer["failed"] == "error" and plain.get("failed") != "error":
            self._give_up(answer["message"])
        return plain

    def choose(self, segments: list[Json]) -> Engine:
        """Return the engine for the segments of a lease."""
        if self._compiled is None and self._has_compiled and sum(s["size"] for s in segments) >= SMALL_BYTES:
            try:
                from logyard.broker.cleaner import compiled_passes
                from logyard.broker.compiled import jit

                jit.load()
                self._compiled = compiled_passes.ENGINE
            except Exception as error:  # libraries that do not fit each other, or no place for compiled code
                self._give_up(f"{type(error).__name__}: {error}")
        return self._compiled or plain_passes.ENGINE

    def _give_up(self, reason: str) -> None:
        self._has_compiled, self._compiled = False, None
        self._say(f"the cleaner works in plain Python from now on: {reason}")
