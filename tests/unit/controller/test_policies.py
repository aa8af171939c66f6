"""Policies for new topics and changed settings: which classes can be loaded, and how their refusals are answered."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from logyard.broker.config.broker import BrokerConfig, ConfigProblems
from logyard.broker.controller import policies
from logyard.broker.controller.policies import ConfigRequest, PolicyViolation, TopicRequest
from logyard.broker.controller.settings import settings_from
from logyard.broker.errors import ApiError, ErrorCode

MINIMAL = "broker.id=4\nzookeeper.connect=127.0.0.1:2181\nlog.dirs=/tmp/x\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
ASKED = TopicRequest("t", 3, 1, None, {})


class NoSingles:
    """A create policy, as an administrator would write one."""

    settings: ClassVar[dict[str, str | None]] = {}

    def configure(self, settings: Mapping[str, str | None]) -> None:
        NoSingles.settings = dict(settings)

    def validate(self, request: TopicRequest) -> None:
        if request.replication_factor == 1:
            raise PolicyViolation(f"{request.topic}: one replica is none")


class NoShortRetention:
    def validate(self, request: ConfigRequest) -> None:
        if int(request.configs.get("retention.ms") or -1) == 0:
            raise PolicyViolation("nothing would be kept")


class Broken:
    def validate(self, request: object) -> None:
        raise KeyError("oops")


class Unmakeable:
    def __init__(self) -> None:
        raise RuntimeError("no licence\nand a second line")

    def validate(self, request: object) -> None: ...


class Deaf:
    """No validate."""


def loaded(create: str = "", alter: str = "") -> policies.Policies:
    lines = [f"{policies.CREATE_TOPIC}={create}"] * bool(create) + [f"{policies.ALTER_CONFIG}={alter}"] * bool(alter)
    return policies.load(BrokerConfig.parse(MINIMAL + "\n".join(lines)))


def here(kind: type) -> str:
    return f"{__name__}.{kind.__name__}"


def test_none_are_configured() -> None:
    assert loaded() == policies.NO_POLICIES


def test_the_settings_carry_the_create_policy() -> None:
    config = BrokerConfig.parse(MINIMAL)
    assert settings_from(config).create_policy is None
    policy = settings_from(config, loaded(here(NoSingles))).create_policy
    assert policy is not None
    assert NoSingles.settings["broker.id"] == "4"
    policy(TopicRequest("t", 3, 2, None, {}))
    with pytest.raises(ApiError, match="t: one replica is none") as refused:
        policy(ASKED)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_the_alter_policy() -> None:
    policy = loaded(alter=here(NoShortRetention)).alter_config
    assert policy is not None
    policy(ConfigRequest("topic", "t", {"retention.ms": None}))
    with pytest.raises(PolicyViolation, match="nothing would be kept"):
        policy(ConfigRequest("topic", "t", {"retention.ms": "0"}))


def test_a_policy_that_fails_is_an_unknown_error_of_that_request() -> None:
    policy = loaded(here(Broken)).create_topic
    assert policy is not None
    with pytest.raises(ApiError, match="KeyError") as refused:
        policy(ASKED)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("NoDots", "package.module.Class"),
        ("a..b", "package.module.Class"),
        ("no.such.module.Policy", "no module no"),
        (f"{__name__}.Missing", "no class Missing"),
        (f"{__name__}.MINIMAL", "no class MINIMAL"),
        (here(Deaf), "validate"),
        (here(Unmakeable), "RuntimeError: no licence"),
    ],
)
def test_a_bad_class_is_a_problem_of_the_configuration(path: str, said: str) -> None:
    with pytest.raises(ConfigProblems) as found:
        loaded(path, here(NoShortRetention))
    (line,) = found.value.problems
    assert line.startswith(f"{policies.CREATE_TOPIC}: {path}: ")
    assert said in line
    assert "\n" not in line


def test_both_problems_are_reported() -> None:
    with pytest.raises(ConfigProblems) as found:
        loaded("x.Y", "x.Z")
    assert len(found.value.problems) == 2
