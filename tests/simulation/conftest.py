"""Which seeds are run: `--seeds N` the first N, `--seeds N-M` those from N to M; `make proof` runs a thousand."""

import pytest

SEEDS = "6"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", default=SEEDS, help="seeds of the simulator that are run: N, or N-M")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, dash, last = str(metafunc.config.getoption("--seeds", SEEDS)).partition("-")
        metafunc.parametrize("seed", range(int(first), int(last) + 1) if dash else range(1, int(first) + 1))
