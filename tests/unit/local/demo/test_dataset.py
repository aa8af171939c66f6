import json

import pandas as pd
import pytest

from logyard.local.demo import dataset


def test_a_row_becomes_an_event() -> None:
    table = pd.DataFrame({"tailnum": ["N1", None, "N2"], "dep_time": [517.0, None, 42.0], "distance": [1, 2, 3]})
    flights = dataset.from_table(table)
    assert list(flights.keyed.keys) == [b"N1", b"N2"]
    assert [json.loads(value) for value in flights.keyed.values] == [
        {"tailnum": "N1", "dep_time": 517, "distance": 1},
        {"tailnum": "N2", "dep_time": 42, "distance": 3},
    ]
    assert [json.loads(value) for value in flights.unassigned] == [{"tailnum": None, "dep_time": None, "distance": 2}]


@pytest.mark.slow  # it reads all 336,776 rows
def test_the_package_holds_the_known_flights() -> None:
    flights = dataset.load()
    assert len(flights.keyed) == 336_776 - 2_512
    assert len(set(flights.keyed.keys)) == 4_043
    assert json.loads(flights.keyed.values[0])["tailnum"] == flights.keyed.keys[0].decode() == "N14228"
