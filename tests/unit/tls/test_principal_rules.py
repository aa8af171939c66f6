"""ssl.principal.mapping.rules: the cases of Kafka's SslPrincipalMapperTest, and what Java's replacement does."""

import contextlib
import threading
import time

import pytest

from logyard.broker.tls.principal_rules import NoRuleApplies, PrincipalRules

USERS = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/"
SIX = "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (f"{USERS}L, DEFAULT", "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (f"{USERS}U, DEFAULT", "CN=Duke,OU=ServiceUsers,O=Org,C=US", "DUKE"),
        (f"{USERS}, {SIX}L, DEFAULT", "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (f"{USERS}, {SIX}L, DEFAULT", "OU=JavaSoft,O=Sun,C=US", "OU=JavaSoft,O=Sun,C=US"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", "CN=Adm.in,O=x", "adm.in"),
        (r"RULE:^CN=([^,ADEFLTU,]+)(.*$|$)/$1/", "CN=duke", "duke"),
        (r"RULE:^CN=([^,DEFAULT,]+)(.*$|$)/$1\/2/", "CN=duke", "duke/2"),
        ("RULE:(.*)/$12/", "a", "a22"),
        ("RULE:(a)b/$2$1/", "ab", "$2a"),
        ("RULE:(x)?a/$1b/", "a", "b"),
        ("RULE:.*/y/", "a", "yy"),
    ],
)
def test_names(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules).name_of(subject) == name


def test_a_subject_made_for_a_rule_takes_no_time() -> None:
    """The rule is that of Kafka's documentation; a certificate like this one kept a broker busy for hours."""
    began = time.monotonic()
    with pytest.raises(NoRuleApplies, match="was not matched within"):
        PrincipalRules(f"{SIX}L,DEFAULT").name_of("CN=a" + ",OU=x,O=x,L=x,ST=x" * 400)
    assert time.monotonic() - began < 10


def test_others_are_served_while_a_subject_is_matched() -> None:
    matched, turns = threading.Event(), 0

    def match() -> None:
        with contextlib.suppress(NoRuleApplies):
            PrincipalRules(f"{SIX}L").name_of("CN=a" + ",OU=x,O=x,L=x,ST=x" * 400)
        matched.set()

    threading.Thread(target=match).start()
    while not matched.wait(0.01):
        turns += 1
    assert turns > 2


def test_no_rule() -> None:
    with pytest.raises(NoRuleApplies, match="'CN=b'"):
        PrincipalRules("RULE:CN=a/x/").name_of("CN=b")
    with pytest.raises(NoRuleApplies):
        PrincipalRules("").name_of("CN=b")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:/",
        "RULE:(/a/",
        "RULE:a/$1/",
        "RULE:a/$/",
    ],
)
def test_wrong_rules_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"expected|expression|group"):
        PrincipalRules(rules)
