"""server.properties as a broker reads it: layers, warnings, all problems at once, listeners, DescribeConfigs."""

from typing import Any

import pytest

from logyard.broker.config.acted_on import ACTED_ON, DYNAMIC, ONLY_IF_GIVEN
from logyard.broker.config.broker import (
    BrokerConfig,
    ConfigProblems,
    validate_dynamic_overrides,
)
from logyard.broker.config.entries import ConfigEntry, ConfigSource
from logyard.broker.config.inter_broker_protocol import IBP_3_9_IV0
from logyard.broker.config.key_types import ConfigType
from logyard.broker.config.keys import KEYS
from logyard.broker.config.relations import super_users
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.model import Endpoint

ZK = "zookeeper.connect=localhost:2181\n"


def parse(text: str = "", **options: Any) -> BrokerConfig:
    return BrokerConfig.parse(ZK + text, **options)


def problems(text: str, *, strict: bool = False) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        BrokerConfig.parse(text, strict=strict)
    return caught.value.problems


TLS = "listeners=SSL://h:1\nsecurity.inter.broker.protocol=SSL\n"


class TestReading:
    def test_defaults(self) -> None:
        config = parse()
        assert config.broker_id == -1
        assert config.listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
        assert config.advertised_listeners == config.listeners
        assert config.inter_broker_listener == "PLAINTEXT"
        assert config.ibp is IBP_3_9_IV0
        assert config.log_dirs == ("/tmp/kafka-logs",)
        assert config.http_listener == ("127.0.0.1", 0)
        assert config.warnings == []

    def test_overrides_win(self) -> None:
        config = BrokerConfig.parse(ZK + "num.partitions=3", {"num.partitions": "4"})
        assert config.int("num.partitions") == 4

    def test_getters(self) -> None:
        config = parse("log.cleaner.min.cleanable.ratio=1\nlog.cleanup.policy=compact,delete")
        assert config.float("log.cleaner.min.cleanable.ratio") == 1.0
        assert config.list("log.cleanup.policy") == ("compact", "delete")
        assert config.optional_str("broker.rack") is None
        assert config.bool("delete.topic.enable") is True
        with pytest.raises(KeyError):
            config.str("no.such.key")
        with pytest.raises(LogyardError, match=r"broker\.rack"):
            config.str("broker.rack")

    @pytest.mark.parametrize(
        ("text", "ms"),
        [
            ("", 604_800_000),
            ("log.retention.hours=1", 3_600_000),
            ("log.retention.minutes=2\nlog.retention.hours=1", 120_000),
            ("log.retention.ms=3\nlog.retention.minutes=2", 3),
            ("log.retention.hours=-1", -1),
        ],
    )
    def test_retention_in_three_units(self, text: str, ms: int) -> None:
        assert parse(text).int("log.retention.ms") == ms
        assert parse(text).topic_defaults().retention_ms == ms

    def test_other_fallbacks(self) -> None:
        config = parse("log.dir=/a\nlog.roll.hours=2\nlog.flush.scheduler.interval.ms=7\nnode.id=5")
        assert config.log_dirs == ("/a",)
        assert parse("log.dir=/a\nlog.dirs=/b, /c").log_dirs == ("/b", "/c")
        assert config.int("log.roll.ms") == 7_200_000
        assert config.topic_defaults().flush_ms == 7
        assert config.broker_id == 5
        assert parse("zookeeper.session.timeout.ms=9000").int("zookeeper.connection.timeout.ms") == 9000

    def test_generated_id_and_bound_address_are_learned_later(self) -> None:
        config = parse().with_static({"broker.id": "1001", "http.advertised.listener": "127.0.0.1:5"})
        assert config.broker_id == 1001
        entry = next(e for e in config.describe() if e.name == "http.advertised.listener")
        assert (entry.value, entry.read_only) == ("127.0.0.1:5", True)
        assert config.with_dynamic({"num.partitions": "4"}).broker_id == 1001


class TestComplaints:
    def test_every_problem_at_once(self) -> None:
        found = problems(
            "num.partitions=0\nlog.segment.bytes=ten\nlog.retention.ms=0\nlisteners=PLAINTEXT//x\n"
            "inter.broker.protocol.version=9.9"
        )
        assert [line.split(":")[0] for line in found] == [
            "num.partitions",
            "log.segment.bytes",
            "log.retention.ms",
            "zookeeper.connect",
            "inter.broker.protocol.version",
            "listeners",
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("replica.fetch.wait.max.ms=40000\nreplica.socket.timeout.ms=50000", "replica.lag.time.max.ms"),
            ("group.min.session.timeout.ms=9\ngroup.max.session.timeout.ms=8", "group.min.session.timeout.ms (9)"),
            ("broker.id=2000", "reserved.broker.max.id"),
            ("broker.id.generation.enable=false", "broker.id"),
            ("process.roles=broker", "ZooKeeper only"),
            ("queued.max.request.bytes=5", "queued.max.request.bytes"),
            ("listeners=A://h:1", "no protocol"),
            ("listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", "twice"),
            ("advertised.listeners=PLAINTEXT://0.0.0.0:1", "others can reach"),
            ("inter.broker.listener.name=X", "X is not among"),
            ("http.listener=nowhere", "http.listener"),
            ("http.listener=0.0.0.0:8082\nhttp.token.file=/t", "set http.advertised.listener=HOST:PORT"),
            ("http.listener=0.0.0.0:8082\nhttp.token.file=/t", "off loopback HTTP needs TLS and log-ins: set http."),
            ("http.listener=10.1.2.3:8082\nhttp.token.file=/t", "off loopback HTTP needs TLS and log-ins: set http."),
            ("http.listener=host.example:8082", "off loopback HTTP needs TLS and log-ins: set http.security.listener"),
            ("http.security.listener=PLAINTEXT", "a listener with SSL or SASL_SSL is expected (there is none)"),
            (f"{TLS}http.security.listener=other", "a listener with SSL or SASL_SSL is expected (SSL), not other"),
            (
                f"{TLS}http.security.listener=ssl",
                "nobody can log in to SSL: set listener.name.ssl.ssl.client.auth=requ",
            ),
            (f"{TLS}http.security.listener=SSL\nhttp.token.file=/t", "http.token.file: leave it out"),
            ("http.listener=[::]:8082", "set http.advertised.listener=HOST:PORT"),
            ("http.listener=[0:0::0]:8082", "set http.advertised.listener=HOST:PORT"),
            ("http.advertised.listener=0.0.0.0:8082", "http.advertised.listener: an address and port"),
            ("http.advertised.listener=h:0", "http.advertised.listener: an address and port"),
            ("http.advertised.listener=h", "http.advertised.listener: host:port"),
            ("log.cleaner.threads=200", "1 MiB"),
        ],
    )
    def test_relations(self, text: str, words: str) -> None:
        assert any(words in line for line in problems(ZK + text)), problems(ZK + text)

    @pytest.mark.parametrize("where", ["127.0.0.1:8082", "127.3.2.1:0", "[::1]:8082", "localhost:8082"])
    def test_plain_http_is_for_loopback(self, where: str) -> None:
        assert BrokerConfig.parse(f"{ZK}http.listener={where}\nhttp.token.file=/t").http_listener

    def test_http_off_loopback_with_tls_and_log_ins(self) -> None:
        secured = f"{TLS}ssl.client.auth=required\nhttp.listener=10.1.2.3:8082\nhttp.security.listener=SSL"
        assert BrokerConfig.parse(ZK + secured).http_listener == ("10.1.2.3", 8082)

    def test_keys_without_effect_are_warned_about_and_refused_when_strict(self) -> None:
        text = "num.network.threads=3\nnum.partitons=2\nlistener.name.x.ssl.provider=PEM\nzzz=1\n"
        warnings = parse(text).warnings
        assert len(warnings) == 4
        assert "does not act on it" in warnings[0]
        assert "unknown (nearest: num.partitions)" in warnings[1]
        assert "does not act on it" in warnings[2]
        assert warnings[3] == "zzz: unknown"
        assert problems(ZK + text, strict=True) == warnings
        assert len(problems(ZK + text + "num.partitions=x", strict=True)) == 5

    def test_settings_of_one_listener(self) -> None:
        own = "listener.name.plaintext.max.connections"
        config = parse(f"max.connections=7\n{own}=5\nlistener.name.plaintext.num.network.threads=2")
        assert config.int_of_listener("PLAINTEXT", "max.connections") == 5
        assert config.int_of_listener("OTHER", "max.connections") == 7
        assert config.warnings == [
            "listener.name.plaintext.num.network.threads: Kafka knows it, Logyard does not act on it"
        ]
        assert parse("listener.name.PLAINTEXT.max.connections=5").warnings == [
            "listener.name.PLAINTEXT.max.connections: no listener is called 'PLAINTEXT' "
            "(listeners: plaintext, in lower case)"
        ]
        assert f"{own}: a whole number of 32 bits, at least 1 is expected, not '0'" in problems(ZK + f"{own}=0")
        assert problems(ZK + "listener.name.x.max.connections=1", strict=True)

    def test_what_is_acted_on_is_known(self) -> None:
        assert set(ACTED_ON) <= set(KEYS)
        assert set(KEYS) >= DYNAMIC
        assert all(ACTED_ON.values())

    def test_strict_takes_what_is_acted_on(self) -> None:
        assert BrokerConfig.parse(ZK + "num.partitions=2", strict=True).warnings == []


class TestListeners:
    def test_several_with_names(self) -> None:
        config = parse(
            "listeners=IN://127.0.0.1:1,OUT://:2\nadvertised.listeners=IN://127.0.0.1:1,OUT://h.example:3\n"
            "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\ninter.broker.listener.name=IN"
        )
        assert config.listeners[1] == Endpoint("OUT", "PLAINTEXT", "", 2)
        assert config.advertised_listeners[1] == Endpoint("OUT", "PLAINTEXT", "h.example", 3)
        assert config.inter_broker_listener == config.control_plane_listener == "IN"

    def test_the_control_planes_listener_is_another_one_that_is_advertised(self) -> None:
        names = "listeners=IN://h:1,OUT://h:2\nlistener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT,C:PLAINTEXT\n"
        names += "inter.broker.listener.name=IN\n"
        assert parse(f"{names}control.plane.listener.name=out").control_plane_listener == "OUT"
        for wrong, said in (
            ("control.plane.listener.name=in", "another listener than that between brokers"),
            ("control.plane.listener.name=C", "C is not among advertised.listeners"),
            (
                "advertised.listeners=IN://h:1\ncontrol.plane.listener.name=OUT",
                "OUT is not among advertised.listeners",
            ),
        ):
            with pytest.raises(ConfigProblems, match=said):
                parse(names + wrong)

    def test_blanks_around_settings_of_rights_do_not_count(self) -> None:
        config = parse(
            "authorizer.class.name = kafka.security.authorizer.AclAuthorizer \n"
            "allow.everyone.if.no.acl.found = true \nsuper.users =  User:a ; User:b "
        )
        assert config.bool("allow.everyone.if.no.acl.found")
        assert super_users(config.str("super.users")) == ["User:a", "User:b"]

    def test_ipv6_and_a_name_for_the_machine(self) -> None:
        config = parse("listeners=PLAINTEXT://[::1]:9092")
        assert config.listeners[0].host == "::1"
        assert parse("listeners=PLAINTEXT://:9092").advertised_listeners[0].host not in ("", "0.0.0.0")


class TestDynamic:
    def test_layers(self) -> None:
        config = parse("log.retention.ms=1\nbackground.threads=3").with_dynamic(
            {"log.retention.ms": "3"}, {"log.retention.ms": "2", "message.max.bytes": "9"}
        )
        assert config.int("log.retention.ms") == 3
        assert config.int("message.max.bytes") == 9
        assert config.with_dynamic({}).int("log.retention.ms") == 1

    def test_what_cannot_change_is_left_out_with_a_warning(self) -> None:
        config = parse().with_dynamic({"num.partitions": "7", "log.retention.ms": "5"})
        assert config.int("num.partitions") == 1
        assert "num.partitions" in config.warnings[0]

    def test_validation(self) -> None:
        config = parse()
        validate_dynamic_overrides(config, {"log.retention.ms": "5"}, cluster_wide=True)
        for overrides, cluster_wide, code in (
            ({"log.retention.ms": "x"}, False, ErrorCode.INVALID_REQUEST),
            ({"nonsense": "2"}, False, ErrorCode.INVALID_CONFIG),
            ({"listeners": "PLAINTEXT://127.0.0.1:1"}, True, ErrorCode.INVALID_REQUEST),
            ({"ssl.keystore.location": "/x"}, False, ErrorCode.INVALID_REQUEST),
            ({"listener.name.plaintext.ssl.keystore.location": "/x"}, True, ErrorCode.INVALID_REQUEST),
        ):
            with pytest.raises(ApiError) as caught:
                validate_dynamic_overrides(config, overrides, cluster_wide=cluster_wide)
            assert caught.value.code is code
        own = "listener.name.plaintext.max.connections"
        for cluster_wide in (True, False):
            validate_dynamic_overrides(config, {own: "5"}, cluster_wide=cluster_wide)
            with pytest.raises(ApiError, match="at least 1 is expected, not '0'"):
                validate_dynamic_overrides(config, {own: "0"}, cluster_wide=cluster_wide)
        with pytest.raises(ApiError, match="unknown"):
            validate_dynamic_overrides(config, {"listener.name.plaintext.ssl.protocol": "x"}, cluster_wide=False)
        with pytest.raises(ApiError, match=r"Set\(num\.partitions\)") as caught:
            validate_dynamic_overrides(config, {"num.partitions": "2"}, cluster_wide=False)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


class TestDescribe:
    @staticmethod
    def entry(config: BrokerConfig, name: str) -> ConfigEntry:
        return next(entry for entry in config.describe() if entry.name == name)

    def test_everything_is_there(self) -> None:
        assert [entry.name for entry in parse().describe()] == sorted(KEYS.keys() - ONLY_IF_GIVEN)

    def test_what_kafka_knows_as_an_override_only_is_there_where_it_was_given(self) -> None:
        rate = "leader.replication.throttled.rate"
        entry = self.entry(parse().with_dynamic({rate: "5"}), rate)
        assert (entry.value, entry.source) == ("5", ConfigSource.DYNAMIC_BROKER)
        assert [s.source for s in entry.synonyms] == [ConfigSource.DYNAMIC_BROKER]

    def test_a_listener_s_own_setting_is_there_where_it_was_given(self) -> None:
        own = "listener.name.plaintext.max.connections"
        config = parse(f"max.connections=7\n{own}=5").with_dynamic({own: "4"})
        entry = self.entry(config, own)
        assert (entry.value, entry.source, entry.type) == ("4", ConfigSource.DYNAMIC_BROKER, ConfigType.INT)
        assert [(s.name, s.value, s.source.name) for s in entry.synonyms] == [
            (own, "4", "DYNAMIC_BROKER"),
            (own, "5", "STATIC_BROKER"),
            ("max.connections", "7", "STATIC_BROKER"),
            ("max.connections", "2147483647", "DEFAULT"),
        ]

    def test_sources_and_synonyms(self) -> None:
        config = parse("log.retention.hours=2\nmin.insync.replicas=2").with_dynamic(
            {"min.insync.replicas": "3"}, {"min.insync.replicas": "4"}
        )
        entry = self.entry(config, "min.insync.replicas")
        assert (entry.value, entry.source, entry.read_only) == ("3", ConfigSource.DYNAMIC_BROKER, False)
        assert [(s.value, s.source) for s in entry.synonyms] == [
            ("3", ConfigSource.DYNAMIC_BROKER),
            ("4", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("2", ConfigSource.STATIC_BROKER),
            ("1", ConfigSource.DEFAULT),
        ]
        entry = self.entry(config, "log.retention.ms")
        assert (entry.value, entry.source, entry.type) == (None, ConfigSource.DEFAULT, ConfigType.LONG)
        assert entry.synonyms == ()
        given = config.with_dynamic({"log.retention.ms": "5"}, {})
        assert [(s.name, s.value) for s in self.entry(given, "log.retention.ms").synonyms] == [
            ("log.retention.ms", "5"),
            ("log.retention.hours", "2"),
            ("log.retention.hours", "168"),
        ]
        assert self.entry(config, "num.partitions").read_only
        assert self.entry(config, "num.partitions").doc

    def test_secrets_are_not_told(self) -> None:
        entry = self.entry(parse("ssl.key.password=hunter2"), "ssl.key.password")
        assert (entry.value, entry.sensitive) == (None, True)
        assert "hunter2" not in repr(entry)
