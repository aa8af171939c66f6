"""How often the page asks an address that several of its parts want, in node with a clock of the test's own."""

from typing import Any

import pytest

# `at`: when it was asked; `pass(ms)`: so much time passes; `use(every)`: a part begins, and returns how it ends.
WORLD = """
let now = 0, number = 0, status = 200;
const at = [], timers = new Map();
globalThis.performance = { now: () => now };
globalThis.setTimeout = (run, ms) => (timers.set(++number, [now + ms, run]), number);
globalThis.clearTimeout = (timer) => timers.delete(timer);
globalThis.document = { hidden: false, baseURI: 'http://page/', addEventListener() {}, removeEventListener() {} };
globalThis.fetch = async () => {
  at.push(now);
  return { status, ok: status === 200, headers: { get: () => '' }, text: async () => '{}' };
};
globalThis.ChakraUI = {};
globalThis.ReactRouterDOM = {};
globalThis.React = { useCallback: (f) => f, useEffect() {}, useSyncExternalStore: (subscribe) => subscribe(() => {}) };
const settle = async () => { for (let turn = 0; turn < 50; turn++) await null; };
const pass = async (ms) => {
  const end = now + ms;
  await settle();
  for (;;) {
    const [due] = [...timers].filter(([, [when]]) => when <= end).sort(([, [a]], [, [b]]) => a - b);
    if (!due) break;
    timers.delete(due[0]);
    now = Math.max(now, due[1][0]);
    due[1][1]();
    await settle();
  }
  now = end;
};
"""
USE = "const use = (every) => m.usePolled('http://page/runs', every);"


def _asked(pure: Any, steps: str) -> list[int]:
    return [int(time) for time in pure("polling.js", f"(async () => {{ {USE} {steps}; return at }})()", WORLD)]


@pytest.mark.parametrize(
    ("steps", "asked"),
    [
        # What was asked once is asked again from when somebody wants to know more.
        ("use(0); await pass(10000); use(1500); await pass(3000)", [0, 10000, 11500, 13000]),
        # Who joins does not put off what is due.
        ("use(3000); await pass(1000); use(3000); await pass(1900); use(60000); await pass(100)", [0, 3000]),
        ("use(60000); await pass(2000); use(1500); await pass(1500)", [0, 2000, 3500]),
        # After the hasty one has gone the pause is the other's.
        ("const end = use(1000); use(5000); await pass(1000); end(); await pass(10000)", [0, 1000, 6000, 11000]),
        ("const end = use(1000); use(0); await pass(1000); end(); await pass(10000)", [0, 1000]),
        ("const end = use(1000); await pass(1000); end(); await pass(10000)", [0, 1000]),
        # A long pause is as long as it was asked for, also after an error.
        ("use(60000); await pass(60000)", [0, 60000]),
        ("status = 500; use(1000); await pass(7000)", [0, 2000, 6000]),
        ("status = 404; use(3000); await pass(60000)", [0, 30000, 60000]),
        ("status = 404; use(60000); await pass(120000)", [0, 60000, 120000]),
        # An error is asked again also where nothing is polled, and no more once it is answered.
        ("status = 500; use(0); await pass(1000); status = 200; await pass(60000)", [0, 6000]),
    ],
)
def test_an_address_is_asked_as_often_as_its_hastiest_user_wants(pure: Any, steps: str, asked: list[int]) -> None:
    assert _asked(pure, steps) == asked
