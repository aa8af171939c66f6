"""Properties text, types and ranges, and the order of protocol levels."""

import pytest

from logyard.broker.config.inter_broker_protocol import IBP_2_7_IV2, IBP_3_9_IV0, InterBrokerProtocol
from logyard.broker.config.key_types import ConfigType, Key, at_least, format_value
from logyard.broker.config.keys import KEYS
from logyard.broker.config.properties import parse_properties


class TestProperties:
    def test_comments_separators_and_blanks(self) -> None:
        text = "# c\n! c\n\n a = 1 \nb:2\r\nc 3\rd\n e\t=\tx=y\n"
        assert parse_properties(text) == {"a": "1 ", "b": "2", "c": "3", "d": "", "e": "x=y"}

    def test_continuation(self) -> None:
        assert parse_properties("a=1,\\\n   2,\\\n   #3\nb=x\\\\\nc=y\\") == {"a": "1,2,#3", "b": "x\\", "c": "y"}

    def test_escapes(self) -> None:
        assert parse_properties(r"a\ b\=c=\t\u00e9\q\\") == {"a b=c": "\té" + "q\\"}

    def test_the_last_of_a_key_counts(self) -> None:
        assert parse_properties("a=1\na=2") == {"a": "2"}

    @pytest.mark.parametrize("text", [r"a=\u00", r"a=\uzzzz"])
    def test_a_malformed_escape_is_named(self, text: str) -> None:
        with pytest.raises(ValueError, match="malformed"):
            parse_properties(text)


class TestKeys:
    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            (ConfigType.BOOLEAN, "TRUE", True),
            (ConfigType.INT, " -7 ", -7),
            (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
            (ConfigType.DOUBLE, "0.5", 0.5),
            (ConfigType.LIST, "a, b,,c", ("a", "b", "c")),
            (ConfigType.LIST, "", ()),
            (ConfigType.STRING, " x ", "x"),
        ],
    )
    def test_values(self, kind: ConfigType, text: str, value: object) -> None:
        assert Key("k", kind).parse(text) == value

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            (ConfigType.BOOLEAN, "yes"),
            (ConfigType.INT, "2147483648"),
            (ConfigType.SHORT, "32768"),
            (ConfigType.INT, "1_000"),
            (ConfigType.INT, "٣"),
            (ConfigType.INT, ""),
            (ConfigType.DOUBLE, "x"),
        ],
    )
    def test_bad_values_name_key_and_what_is_allowed(self, kind: ConfigType, text: str) -> None:
        with pytest.raises(ValueError, match=r"^the\.key: .* is expected"):
            Key("the.key", kind).parse(text)

    def test_ranges(self) -> None:
        with pytest.raises(ValueError, match="at least 1 is expected, not '0'"):
            Key("k", ConfigType.INT, 5, at_least(1)).parse("0")

    def test_passwords_are_never_shown(self) -> None:
        key = Key("k", ConfigType.PASSWORD)
        assert key.sensitive
        assert "hunter2" not in key.problem("hunter2")

    def test_every_default_is_allowed_and_reads_back(self) -> None:
        for key in KEYS.values():
            text = format_value(key.default)
            if text is not None and text != "":
                assert key.parse(text) == key.default, key.name

    def test_defaults_worth_pinning(self) -> None:
        pinned = {
            "num.partitions": 1,
            "default.replication.factor": 1,
            "min.insync.replicas": 1,
            "log.segment.bytes": 1 << 30,
            "log.retention.hours": 168,
            "log.segment.delete.delay.ms": 60_000,
            "replica.lag.time.max.ms": 30_000,
            "replica.fetch.wait.max.ms": 500,
            "replica.fetch.response.max.bytes": 10 << 20,
            "message.max.bytes": 1_048_588,
            "socket.request.max.bytes": 100 << 20,
            "fetch.max.bytes": 57_671_680,
            "zookeeper.session.timeout.ms": 18_000,
            "unclean.leader.election.enable": False,
            "delete.topic.enable": True,
            "offsets.topic.num.partitions": 50,
            "transactional.id.expiration.ms": 604_800_000,
        }
        assert {name: KEYS[name].default for name in pinned} == pinned


class TestInterBrokerProtocol:
    @pytest.mark.parametrize(
        ("text", "level"),
        [
            ("3.9", IBP_3_9_IV0),
            ("3.9.1", IBP_3_9_IV0),
            ("3.9-IV0", IBP_3_9_IV0),
            ("2.7", IBP_2_7_IV2),
            ("0.10.0", InterBrokerProtocol.IBP_0_10_0_IV1),
            ("0.8.2.0", InterBrokerProtocol.IBP_0_8_2),
            ("0.8.0", InterBrokerProtocol.IBP_0_8_0),
            ("1.0", InterBrokerProtocol.IBP_1_0_IV0),
        ],
    )
    def test_releases_and_levels(self, text: str, level: InterBrokerProtocol) -> None:
        assert InterBrokerProtocol.from_text(text) is level

    @pytest.mark.parametrize("text", ["4.0", "2.7-IV9", "x", "", "3", "2.7.x"])
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="no level"):
            InterBrokerProtocol.from_text(text)

    def test_order_and_names(self) -> None:
        levels = list(InterBrokerProtocol)
        assert levels == sorted(levels)
        assert [level.value for level in levels] == list(range(len(levels)))
        assert all(InterBrokerProtocol.from_text(level.text) is level for level in levels)
        assert IBP_2_7_IV2 < IBP_3_9_IV0
