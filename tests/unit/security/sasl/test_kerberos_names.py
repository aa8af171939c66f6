"""sasl.kerberos.principal.to.local.rules: the cases of Kafka's KerberosNameTest, and what its classes do besides.

tests/reference/test_kerberos.py compares random rules with Kafka's own class.
"""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.security.sasl.kerberos_names import KerberosNames, NoLocalName

REALM = "REALM.COM"
KAFKAS = [
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
    "DEFAULT",
]
LOWER = [
    "RULE:[1:$1]/L",
    "RULE:[2:$1](Test.*)s/ABC///L",
    "RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L",
    "RULE:[2:$1]/L",
    "DEFAULT",
]
UPPER = [rule.replace("/L", "/U") for rule in LOWER]


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (KAFKAS, "App.service-name/example.com@REALM.COM", "service-name"),
        (KAFKAS, "App.service-name@REALM.COM", "service-name"),
        (KAFKAS, "user/host@REALM.COM", "user"),
        (LOWER, "User@REALM.COM", "user"),
        (LOWER, "TestABC/host@FOO.COM", "test"),
        (LOWER, "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (LOWER, "App.SERVICE-name/example.com@REALM.COM", "service-name"),
        (LOWER, "User/root@REALM.COM", "user"),
        (UPPER, "User@REALM.COM", "USER"),
        (UPPER, "TestABC/host@FOO.COM", "TEST"),
        (UPPER, "ABC_User_ABC/host@FOO.COM", "XYZ_USER_XYZ"),
        (UPPER, "App.SERVICE-name/example.com@REALM.COM", "SERVICE-NAME"),
        (UPPER, "User/root@REALM.COM", "USER"),
        (["DEFAULT"], "alice", "alice"),
        (["RULE:[1:$1.$0]"], "alice@OTHER", "alice.OTHER"),
        (["RULE:[2:$2;$1](^.*;admin$)s/;.*//", "DEFAULT"], "admin/h@REALM.COM", "h"),
        (["RULE:[2:x]", "DEFAULT"], "a@REALM.COM", "a"),
        (["RULE:[1:$1]s/a/b/"], "aa@R", "ba"),
        (["RULE:[1:$1]s/a/b/g"], "aa@R", "bb"),
        (["RULE:[1:$1]s/(a)(b)?/<$1$2>/g"], "aab@R", "<a><ab>"),
        (["RULE:[1:x$1y]L"], "A@R", "xay"),
        (["RULE:[1:$1]s/(a+)/$10/"], "aa@R", "aa0"),
    ],
)  # fmt: skip
def test_names(rules: list[str], principal: str, name: str) -> None:
    assert KerberosNames(rules, REALM).name_of(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal", "why"),
    [
        (["DEFAULT"], "alice@OTHER", "no rule"),
        (["RULE:[1:$1](b.*)"], "alice@REALM.COM", "no rule"),
        ([], "alice@REALM.COM", "no rule"),
        (["RULE:[1:$1@$0]", "DEFAULT"], "alice@REALM.COM", "no simple name"),
        (["RULE:[2:$1/$2]"], "a/b@REALM.COM", "no simple name"),
        (["RULE:[1:$2]", "DEFAULT"], "alice@REALM.COM", "none of"),
        (["RULE:[1:$]", "DEFAULT"], "alice@REALM.COM", "none of"),
        (["RULE:[1:$99999999999]"], "alice@REALM.COM", "none of"),
        (["DEFAULT"], "a/b/c@REALM.COM", "no principal"),
        (["DEFAULT"], "a@b@REALM.COM", "no principal"),
        (["DEFAULT"], "a/b", "no principal"),
        (["DEFAULT"], "", "no principal"),
        (["DEFAULT"], "@REALM.COM", "empty"),
        (["RULE:[1:$1]s/.*//"], "alice@REALM.COM", "empty"),
        (["DEFAULT"], "alice@", "no rule"),
    ],
)
def test_who_has_no_name(rules: list[str], principal: str, why: str) -> None:
    with pytest.raises(NoLocalName, match=why):
        KerberosNames(rules, REALM).name_of(principal)


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULTL",
        "RULE:[1:$1",
        "RULE:[:$1]",
        "RULE:[n:$1]",
        "RULE:[1]",
        "RULE:[1:$1](a",
        "RULE:[1:$1]s/a/b",
        "RULE:[1:$1]s/a/b/x",
        "RULE:[1:$1]/LU",
        "RULE:[1:$1]s/(/b/",
        "RULE:[1:$1](a{2,1})",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$/",
        "",
    ],
)
def test_wrong_rules_are_refused_at_the_start(rule: str) -> None:
    with pytest.raises(ValueError, match=r"expected|expression|group") as refused:
        KerberosNames(["DEFAULT", rule], REALM)
    assert "\n" not in str(refused.value)


WORDS = st.text(st.characters(exclude_characters="/@"), min_size=1, max_size=8)
PIECES = st.sampled_from(["$0", "$1", "$2", "$3", "$", "a", ".", "-", "@", "/", "A"])
RULES = st.builds(
    "RULE:[{}:{}]{}{}{}".format,
    st.integers(0, 3),
    st.lists(PIECES, max_size=4).map("".join),
    st.sampled_from(["", "(.*)", "(a.*)", "(A|b)"]),
    st.sampled_from(["", "s/a/b/", "s/(.)a/$1x/g", "s/.//", "s/A*/-/g"]),
    st.sampled_from(["", "/L", "/U", "L"]),
) | st.just("DEFAULT")


@given(st.lists(RULES, max_size=3), st.lists(WORDS, min_size=1, max_size=3), WORDS)
def test_a_name_is_simple_or_there_is_none(rules: list[str], components: list[str], realm: str) -> None:
    names = KerberosNames(rules, REALM)
    try:
        name = names.name_of(f"{'/'.join(components)}@{realm}")
    except NoLocalName as problem:
        assert "\n" not in str(problem)  # noqa: PT017  # any principal may have none
        return
    assert name
    assert re.search("[/@]", name) is None
    assert len(components) <= 2


@given(WORDS, WORDS)
def test_the_default_rule_knows_its_own_realm_only(name: str, realm: str) -> None:
    assert KerberosNames(["DEFAULT"], realm).name_of(f"{name}/some.host@{realm}") == name
    with pytest.raises(NoLocalName):
        KerberosNames(["DEFAULT"], realm).name_of(f"{name}@{realm}x")


@given(st.lists(st.text(max_size=30), max_size=2), st.text(max_size=30))
def test_any_text(rules: list[str], principal: str) -> None:
    with suppress(ValueError, NoLocalName):
        KerberosNames(rules, REALM).name_of(principal)
