"""How many seeds are run: `--seeds N`."""

import pytest

SEEDS = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=SEEDS, help="how many seeds of the simulator are run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(1, metafunc.config.getoption("--seeds", SEEDS) + 1))
