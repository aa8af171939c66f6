"""Time that has passed is measured on a monotonic clock; the places that ask the wall are listed, by the reason."""

from functools import cache

from tests.support import floors, wall_clock


@cache
def places() -> dict[str, int]:
    """Every place of the product that asks a wall clock, as module:function, with one of its lines."""
    return {
        f"{floors.module_name(path, floors.ROOT)}:{function}": line
        for path in floors.python_files(floors.ROOT)
        for function, line in wall_clock.uses(path.read_text())
    }


def allowed() -> set[str]:
    return {place for places in wall_clock.ALLOWED.values() for place in places}


def test_nobody_asks_the_wall_clock_without_a_reason() -> None:
    new = {place: line for place, line in places().items() if place not in allowed()}
    assert new == {}, "measure on a monotonic clock, or give the reason in tests/support/wall_clock.py"


def test_every_reason_has_its_place() -> None:
    assert allowed() - set(places()) == set()


def test_planted_uses_are_found() -> None:
    def found(source: str) -> list[str]:
        return [function for function, _ in wall_clock.uses(source)]

    assert found("def f():\n    return time.time() + 5\n") == ["f"]
    assert found("class A:\n    async def f(self):\n        self._clock.now_ms()\n") == ["A.f"]
    assert found("late = partial(world.clock.now_ms)\n") == [""]
    assert found("from time import time\n") == [""]
    assert found("x = datetime.datetime.now(UTC)\ny = os.path.getmtime('f')\n") == ["", ""]
    assert found("a = time.monotonic()\nb = hosted.now_ms()\nc = loop.time()\n") == []
