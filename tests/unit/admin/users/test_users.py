import pytest

from logyard.admin.users import users
from logyard.admin.users.users import BadUser, NewPassword


def test_mechanisms() -> None:
    assert users.mechanisms("scram-sha-256, SCRAM-SHA-512,SCRAM-SHA-256") == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert users.mechanisms("") == ("SCRAM-SHA-512",)
    with pytest.raises(BadUser, match="'MD5'"):
        users.mechanisms(["md5"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (NewPassword("", "SCRAM-SHA-512", "hunter2"), "name is expected"),
        (NewPassword("a", "PLAIN", "hunter2"), "mechanism 'PLAIN'"),
        (NewPassword("a", "SCRAM-SHA-512", "hunter2", 4095), "between 4096 and 16384"),
        (NewPassword("a", "SCRAM-SHA-512", ""), "password of user 'a' is empty"),
    ],
)
def test_what_brokers_refuse_is_refused_here(wrong: NewPassword, said: str) -> None:
    with pytest.raises(BadUser, match=said) as found:
        wrong.check()
    assert "hunter2" not in str(found.value) + repr(wrong)


def test_lines_are_those_of_kafkas_tool() -> None:
    assert users.lines({"b": {"SCRAM-SHA-512": 8192, "SCRAM-SHA-256": 4096}, "a": {"SCRAM-SHA-256": 4096}}) == [
        "SCRAM credential configs for user-principal 'a' are SCRAM-SHA-256=iterations=4096",
        "SCRAM credential configs for user-principal 'b' are SCRAM-SHA-256=iterations=4096, "
        "SCRAM-SHA-512=iterations=8192",
    ]
