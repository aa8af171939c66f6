"""The tokens of a broker's own log-in: from an endpoint, a file or its options; renewed in time, and never shown."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.security.sasl.bearer_tokens import BearerToken
from logyard.broker.security.sasl.login_modules import client_exchange
from logyard.broker.security.sasl.login_tokens import Endpoint, LoginTokens, RefreshRules, from_file, refresh_after_s
from logyard.broker.security.sasl.mechanism import LoginRefused
from logyard.broker.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from logyard.broker.security.sasl.unsecured_jws import UnsecuredRules, UnsecuredTokens
from tests.support.token_endpoint import TokenEndpoint
from tests.unit.security.sasl.test_oauthbearer import jws

SECRET = "br0ker:s ecret"


class World:
    """An issuer of tokens that live for `life_s`, and two clocks."""

    def __init__(self, life_s: float = 1000.0) -> None:
        self.life_s, self.now_s, self.elapsed_s = life_s, 5000.0, 0.0
        self.given: list[str] = []
        self.asked: list[float] = []
        self.is_away = False
        self.hold: Callable[[], None] = lambda: None

    def fetch(self) -> str:
        self.asked.append(self.elapsed_s)
        self.hold()
        if self.is_away:
            raise LoginRefused("the endpoint is away")
        number = len(self.given)
        claims = {"sub": "broker", "iat": self.now_s, "exp": self.now_s + self.life_s, "n": number}
        self.given.append(jws(claims))
        return self.given[-1]

    def tokens(self, rules: RefreshRules | None = None, chance: float = 0.5) -> LoginTokens:
        return LoginTokens(
            self.fetch,
            rules or RefreshRules(),
            "sub",
            lambda: round(self.now_s * 1000),
            lambda: chance,
            lambda: self.elapsed_s,
        )

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.elapsed_s += seconds


def test_one_token_serves_until_it_is_to_be_renewed() -> None:
    world = World()
    tokens = world.tokens()
    assert [tokens.token() for _ in range(3)] == [world.given[0]] * 3
    world.wait(699)  # 0.825 of the life would be later than 300 s before its end
    assert tokens.token() == world.given[0]
    world.wait(2)
    assert tokens.token() == world.given[1] != world.given[0]


def test_an_endpoint_that_is_away_costs_nothing_while_the_token_is_valid() -> None:
    world = World()
    tokens = world.tokens()
    tokens.token()
    world.is_away = True
    world.wait(800)
    assert tokens.token() == world.given[0]
    world.wait(199)
    assert tokens.token() == world.given[0]
    world.wait(1)
    with pytest.raises(LoginRefused, match="is away"):
        tokens.token()
    world.is_away = False
    assert tokens.token() == world.given[1]


def test_an_endpoint_that_fails_is_asked_again_after_a_pause() -> None:
    """It may take its time-out each time, and every link to another broker would wait for that."""
    world = World()
    tokens = world.tokens()
    tokens.token()
    world.is_away = True
    world.wait(800)
    for _ in range(25):
        assert tokens.token() == world.given[0]
        world.wait(1)
    assert world.asked == [0, 800, 810, 820]


def test_who_comes_while_another_asks_goes_on_with_the_old_token() -> None:
    world, asked, answered = World(), threading.Event(), threading.Event()
    tokens = world.tokens()
    first = tokens.token()

    def hold() -> None:
        asked.set()
        assert answered.wait(10)

    world.hold = hold
    world.wait(800)
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(tokens.token()))
    waiting.start()
    assert asked.wait(10)
    assert tokens.token() == first
    answered.set()
    waiting.join(10)
    assert found == [world.given[1]]


def test_a_clock_that_jumps_changes_nothing_between_two_tokens() -> None:
    world = World()
    tokens = world.tokens()
    tokens.token()
    for jump in (-4000, 8000):
        world.now_s += jump
        assert tokens.token() == world.given[0]


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "no token"),
        ("a.b", "no token"),
        ("a.b.c.d", "no token"),
        ("a.%.c", "no token"),
        ("a.!!!.c\r\nX: y", "no token"),
        ("e30.e30.", "no claim sub"),
        (jws({"sub": "broker"}), "no number as exp"),
        (jws({"sub": " ", "exp": 9e9}), "no claim sub"),
        (jws({"sub": "broker", "exp": 1}), "expired"),
        (jws([1]), "no JSON object"),
    ],
)
def test_what_is_no_token_is_refused_and_not_shown(token: str, said: str) -> None:
    tokens = LoginTokens(lambda: token, RefreshRules(), "sub", lambda: 2000)
    with pytest.raises(LoginRefused, match=said) as caught:
        tokens.token()
    assert not token or token not in str(caught.value)


@given(
    age_s=st.floats(0, 1e6),
    left_s=st.floats(0.001, 1e6),
    factor=st.floats(0.5, 1),
    jitter=st.floats(0, 0.25),
    times=st.tuples(st.integers(0, 900), st.integers(0, 3600)),
    chance=st.floats(0, 1),
)
def test_the_renewal_is_between_now_and_the_end(
    age_s: float, left_s: float, factor: float, jitter: float, times: tuple[int, int], chance: float
) -> None:
    rules = RefreshRules(factor, jitter, *times)
    after = refresh_after_s(age_s, left_s, rules, chance)
    assert after >= 0
    # factor and jitter may add up to more than the whole life; then the buffer is the bound, where it fits.
    if sum(times) <= left_s:
        assert times[0] <= after <= left_s - times[1]
    else:
        assert after == left_s * (factor + jitter * chance)


def test_many_threads_ask_the_endpoint_once() -> None:
    world = World()
    tokens = world.tokens()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(tokens.token())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [world.given[0]] * 20


# -- where they come from


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(tmp_path, {"broker": SECRET}) as made:
        yield made


def test_an_endpoint_gives_tokens_by_client_credentials(endpoint: TokenEndpoint) -> None:
    asked = Endpoint(endpoint.url, "broker", SECRET, scope="a b")
    tokens = LoginTokens(asked.fetch, RefreshRules(), "sub", lambda: 0)
    assert tokens.token().count(".") == 2
    assert SECRET not in repr(asked)
    encoded = Endpoint(endpoint.url, "broker", SECRET, encodes=True)
    with pytest.raises(LoginRefused, match="401 invalid_client"):  # this endpoint does not decode them
        encoded.fetch()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (None, "refuses client 'broker': 401 invalid_client"),
        ("http://127.0.0.1:1/token", "Connection refused"),
        ("http://nowhere.invalid/token", "nowhere.invalid"),
    ],
)
def test_a_refusal_of_the_endpoint_has_its_reason_and_no_secret(
    endpoint: TokenEndpoint, url: str | None, said: str
) -> None:
    with pytest.raises(LoginRefused, match=said) as caught:
        Endpoint(url or endpoint.url, "broker", "wr0ng-secret", connect_s=5).fetch()
    assert "wr0ng" not in str(caught.value)


def test_a_secret_in_the_address_is_not_shown() -> None:
    asked = Endpoint("http://me:s3cr@127.0.0.1:1/token?key=s3cr", "broker", "x")
    with pytest.raises(LoginRefused, match=r"http://127\.0\.0\.1:1/token: ") as caught:
        asked.fetch()
    assert "s3cr" not in str(caught.value) + repr(asked)


def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(LoginRefused, match="No such file"):
        from_file(path)
    path.write_text("one\n")
    assert from_file(path) == "one"
    path.write_text("two")
    assert from_file(path) == "two"


# -- from a listener's settings

BASE = (
    "zookeeper.connect=z:2181\nbroker.id=1\nlog.dirs=/x\nlisteners=IN://h:9\ninter.broker.listener.name=IN\n"
    "listener.security.protocol.map=IN:SASL_PLAINTEXT\nsasl.enabled.mechanisms=OAUTHBEARER\n"
    "sasl.mechanism.inter.broker.protocol=OAUTHBEARER\n"
)
MODULE = "listener.name.in.oauthbearer.sasl.jaas.config=o.a.k.OAuthBearerLoginModule required"
HANDLER = "listener.name.in.oauthbearer.sasl.login.callback.handler.class=o.a.k.OAuthBearerLoginCallbackHandler\n"
URL = "sasl.oauthbearer.token.endpoint.url"


def exchange_of(text: str) -> Any:
    return client_exchange(BrokerConfig.parse(BASE + text).listener("IN"), "OAUTHBEARER", lambda: 1_000_000)


def test_the_unsecured_log_in_makes_what_the_unsecured_validator_takes() -> None:
    options = (
        'unsecuredLoginStringClaim_sub="broker" unsecuredLoginNumberClaim_level="7" '
        'unsecuredLoginListClaim_scope="|a|b" unsecuredLoginExtension_trace="x" unsecuredValidatorRequiredScope="a"'
    )
    client = exchange_of(f"{MODULE} {options};\n")("host")
    server = OAuthBearerServer(UnsecuredTokens(UnsecuredRules(required_scope=("a", "b")), lambda: 1_001_000))
    first = client.first()
    assert first.endswith(b"\x01trace=x\x01\x01")
    answer = server.step(first)
    assert client.step(answer) is None
    assert client.is_done
    assert server.identity is not None
    assert (server.identity.name, server.identity.expires_ms) == ("broker", 1_000_000 + 3_600_000)


def test_a_refused_token_is_acknowledged_so_that_the_server_can_say_why() -> None:
    client = OAuthBearerClient(lambda: jws({"sub": "broker", "exp": 1}))
    server = OAuthBearerServer(UnsecuredTokens(UnsecuredRules(), lambda: 1_000_000))
    told = server.step(client.first())
    acknowledged = client.step(told)
    assert acknowledged == b"\x01"
    assert not client.is_done
    with pytest.raises(LoginRefused):
        server.step(acknowledged)


def test_the_endpoints_settings_are_the_listeners(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    class Signed:
        def validate(self, token: str) -> BearerToken:
            return BearerToken("broker", 1)

    text = f'{MODULE} clientId="broker" clientSecret="{SECRET}" extension_trace="x";\n{HANDLER}'
    begin = exchange_of(f"{text}listener.name.in.{URL}={endpoint.url}\n")
    assert SECRET not in repr(begin)
    for _ in range(2):
        client, server = begin("host"), OAuthBearerServer(Signed())
        client.step(server.step(client.first()))
        assert client.is_done
    assert endpoint.asked == 1, "both log-ins have the same token"
    path = tmp_path / "of broker"
    path.write_text(endpoint.token("broker"))
    from_a_file = exchange_of(f"{MODULE};\n{HANDLER}{URL}={path.as_uri()}\n")
    assert path.read_bytes() in from_a_file("host").first()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{MODULE};\n", 'unsecuredLoginStringClaim_sub="…" is expected'),
        (f'{MODULE} unsecuredLoginStringClaim_sub="b" unsecuredLoginLifetimeSeconds="x";\n', "LifetimeSeconds"),
        (f'{MODULE} unsecuredLoginStringClaim_sub="b" unsecuredLoginNumberClaim_n="x";\n', "NumberClaim_n"),
        (f'{MODULE} unsecuredLoginStringClaim_sub="b" unsecuredLoginStringClaim_exp="9";\n', "set by the broker"),
        (f"{MODULE};\n{HANDLER}", f"{URL}: an https, http or file URL"),
        (f"{MODULE};\n{HANDLER}{URL}=ftp://h/x\n", f"{URL}: an https, http or file URL"),
        (f"{MODULE};\n{HANDLER}{URL}=file:///no/where\n", "there is no file /no/where"),
        (f'{MODULE} clientSecret="s3cr";\n{HANDLER}{URL}=http://h/\n', "clientId is expected"),
        (f'{MODULE} clientId="c";\n{HANDLER}{URL}=http://h/\n', "clientSecret is expected"),
        (f"{MODULE};\n{HANDLER.replace('OAuthBearerLogin', 'My')}", "classes of Java"),
    ],
)
def test_problems_name_the_setting_and_no_secret(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        exchange_of(text)
    assert "s3cr" not in str(caught.value)
