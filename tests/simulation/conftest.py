"""Which seeds are run: `--seeds N` the first N, `--seeds N-M` those from N to M; `make proof` runs a thousand."""

import pytest

SEEDS = "4"
# What the first seed has seen is asked for by another test: a worker that has both plays it once.
FIRST = pytest.mark.xdist_group("the first seed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", default=SEEDS, help="seeds of the simulator that are run: N, or N-M")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, dash, last = str(metafunc.config.getoption("--seeds", SEEDS)).partition("-")
        seeds = range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
        metafunc.parametrize("seed", [pytest.param(seed, marks=FIRST) if seed == 1 else seed for seed in seeds])
