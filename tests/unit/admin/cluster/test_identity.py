"""Whether a connection leads to another cluster than before."""

import pytest

from logyard.admin.cluster.identity import led_elsewhere


def test_another_cluster_is_told() -> None:
    told = led_elsewhere("a", "b", "when it began")
    assert told == "the connection led to cluster a when it began, and leads to b now"


@pytest.mark.parametrize(("known", "found"), [("a", "a"), ("", "b"), (None, "b"), ("a", ""), ("a", None), (None, None)])
def test_the_same_cluster_or_one_without_an_id_is_not(known: str | None, found: str | None) -> None:
    assert led_elsewhere(known, found, "when it began") == ""
