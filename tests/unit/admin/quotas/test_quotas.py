import pytest

from logyard.admin.configs.entities import BadConfig, Entity
from logyard.admin.quotas import quotas


def test_entities() -> None:
    assert quotas.entity_of(user="a", client="c") == Entity(("users", "clients"), ("a", "c"))
    assert quotas.entity_of(ip="") == Entity(("ips",), ("",))
    assert quotas.spoken(quotas.entity_of(user="a", client="")) == "user a, the default client"
    for wrong in ({}, {"ip": "1.2.3.4", "user": "a"}):
        with pytest.raises(BadConfig):
            quotas.entity_of(**wrong)


@pytest.mark.parametrize(
    ("entity", "values", "said"),
    [
        (quotas.entity_of(user="a"), {"connection_creation_rate": 5.0}, "one of producer_byte_rate"),
        (quotas.entity_of(ip="1.2.3.4"), {"producer_byte_rate": 5.0}, "one of connection_creation_rate"),
        (quotas.entity_of(user="a"), {"producer_byte_rate": 0.0}, "above 0"),
        (quotas.entity_of(user="a"), {"producer_byte_rate": float("nan")}, "above 0"),
    ],
)
def test_what_cannot_be_set_is_named(entity: Entity, values: dict[str, float], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        quotas.check(entity, values)
