"""Each znode's text against facts §1, and what is tolerated or refused when reading."""

import json
import re
import uuid

import pytest

from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol
from logyard.broker.errors import CorruptData
from logyard.broker.model import (
    Assignment,
    BrokerInfo,
    Endpoint,
    LevelRange,
    PartitionState,
    TopicAssignment,
    TopicPartition,
)
from logyard.broker.znodes import (
    brokers,
    cluster_id,
    config_changes,
    configs,
    controller,
    delete_topics,
    feature,
    isr_notifications,
    log_dir_events,
    partition_state,
    paths,
    preferred_election,
    producer_ids,
    reassignments,
    topics,
)
from logyard.broker.znodes.ops import Znode

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def znode(text: str, czxid: int = 77) -> Znode:
    return Znode(text.encode(), 0, czxid)


class TestController:
    def test_is_written_as_kafka_3_9_does(self) -> None:
        assert controller.encode(3, 1700) == (
            b'{"version":2,"brokerid":3,"timestamp":"1700","kraftControllerEpoch":-1}'
        )

    @pytest.mark.parametrize("text", ['{"version":1,"brokerid":4,"timestamp":"1"}', '{"brokerid":4,"x":[]}'])
    def test_only_the_broker_id_is_read(self, text: str) -> None:
        assert controller.decode(text.encode()) == 4

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"brokerid":"4"}', '{"brokerid":true}', '{"brokerid":null}'])
    def test_anything_else_is_named_with_its_path(self, text: str) -> None:
        with pytest.raises(CorruptData, match="/controller"):
            controller.decode(text.encode())

    def test_the_epoch_is_plain_decimal_text(self) -> None:
        assert controller.encode_epoch(12) == b"12"
        assert controller.decode_epoch(b"12") == 12
        with pytest.raises(CorruptData, match="/controller_epoch"):
            controller.decode_epoch(b"{}")


class TestBrokers:
    PLAIN = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)

    def test_features(self) -> None:
        info = BrokerInfo(1, (self.PLAIN,), features=(("transaction.version", LevelRange(1, 2)),))
        written = brokers.encode(info, 0)
        assert b'"features":{"transaction.version":{"min_version":1,"max_version":2}}' in written
        assert brokers.decode(1, Znode(written, 0, 0)).features == info.features
        for odd in (b"[]", b'{"a":1}', b'{"a":{"min_version":"x","max_version":2}}'):
            broken = written.replace(b'{"transaction.version":{"min_version":1,"max_version":2}}', odd)
            assert broken != written
            assert brokers.decode(1, Znode(broken, 0, 0)).features == ()

    def test_version_5(self) -> None:
        info = BrokerInfo(1, (self.PLAIN,), rack="r1", http="127.0.0.1:81")
        written = brokers.encode(info, 1700)
        assert written == (
            b'{"version":5,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"timestamp":"1700",'
            b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"rack":"r1","features":{},'
            b'"logyard_http":"127.0.0.1:81"}'
        )
        assert brokers.decode(1, Znode(written, 0, 55)) == BrokerInfo(
            1, (self.PLAIN,), rack="r1", epoch=55, http="127.0.0.1:81"
        )

    def test_without_plaintext_host_and_port_say_so(self) -> None:
        info = BrokerInfo(1, (Endpoint("OUT", "SSL", "::1", 9093),))
        content = json.loads(brokers.encode(info, 0, version=4))
        assert (content["host"], content["port"]) == (None, -1)
        assert content["endpoints"] == ["OUT://[::1]:9093"]
        assert "features" not in content
        assert "rack" not in content
        assert brokers.decode(1, Znode(brokers.encode(info, 0), 0, 9)).endpoints == info.endpoints

    @pytest.mark.parametrize(("text", "version"), [("0.8.2", 2), ("0.10.0", 4), ("2.6", 4), ("2.7-IV0", 5), ("3.9", 5)])
    def test_the_protocol_level_decides_the_version(self, text: str, version: int) -> None:
        assert brokers.version_for(InterBrokerProtocol.from_text(text)) == version

    def test_version_2_has_neither_names_nor_rack(self) -> None:
        written = brokers.encode(BrokerInfo(1, (self.PLAIN,), rack="r1"), 1700, version=2)
        assert written == (
            b'{"version":2,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"timestamp":"1700"}'
        )
        assert brokers.decode(1, Znode(written, 0, 55)) == BrokerInfo(1, (self.PLAIN,), epoch=55)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}', PLAIN),
            ('{"version":2,"host":"h","port":9092,"jmx_port":-1,"endpoints":["PLAINTEXT://h:9092"]}', PLAIN),
            (
                '{"endpoints":["out://h:1"],"listener_security_protocol_map":{"OUT":"SASL_SSL"},"version":4,"rack":null}',
                Endpoint("OUT", "SASL_SSL", "h", 1),
            ),
        ],
    )
    def test_older_versions(self, text: str, expected: Endpoint) -> None:
        info = brokers.decode(2, znode(text))
        assert info == BrokerInfo(2, (expected,), epoch=77)

    @pytest.mark.parametrize(
        "text",
        [
            "{}",
            '{"version":0}',
            '{"version":4,"endpoints":["h:1"]}',
            '{"version":5}',
            '{"version":1,"host":"h","port":%s}' % ("9" * 5000),
            '{"version":4,"endpoints":["A://h:%s"]}' % ("9" * 5000),
        ],
    )
    def test_a_bad_registration_names_the_broker(self, text: str) -> None:
        with pytest.raises(CorruptData, match="/brokers/ids/2"):
            brokers.decode(2, znode(text))

    def test_the_first_generated_id_follows_the_reserved_ones(self) -> None:
        assert brokers.generated_id(1, 1000) == 1001


class TestTopics:
    MOVING = TopicAssignment({0: Assignment((1, 2, 3), (3,), (1,)), 10: Assignment((2,))}, TOPIC_ID)

    def test_version_3(self) -> None:
        written = topics.encode(self.MOVING)
        assert written == (
            b'{"version":3,"partitions":{"0":[1,2,3],"10":[2]},"adding_replicas":{"0":[3]},'
            b'"removing_replicas":{"0":[1]},"topic_id":"ASNFZ4mrze8BI0VniavN7w"}'
        )
        assert topics.decode(written) == self.MOVING

    def test_version_2_has_no_id_and_1_no_moves(self) -> None:
        assert topics.decode(topics.encode(self.MOVING, 2)) == TopicAssignment(self.MOVING.partitions)
        assert topics.encode(self.MOVING, 1) == b'{"version":1,"partitions":{"0":[1,2,3],"10":[2]}}'
        both_keys = json.loads(topics.encode(TopicAssignment({0: Assignment((1,))}), 2))
        assert both_keys["adding_replicas"] == both_keys["removing_replicas"] == {}

    def test_partitions_come_in_the_order_of_their_numbers(self) -> None:
        found = topics.decode(b'{"partitions":{"10":[1],"9":[2]},"version":1,"extra":0}')
        assert list(found.partitions) == [9, 10]

    @pytest.mark.parametrize(
        "text",
        [
            "not json",
            "{}",
            '{"version":1,"partitions":[]}',
            '{"partitions":{"x":[1]}}',
            '{"partitions":{"-1":[1]}}',
            '{"partitions":{"%s":[1]}}' % ("1" * 5000),
            '{"partitions":{"\u0661":[1]}}',
            '{"partitions":{"1_0":[1]}}',
            '{"partitions":{"01":[1]}}',
            '{"partitions":{"0":[true]}}',
            '{"partitions":{"0":["1"]}}',
            '{"partitions":{"0":[1]},"topic_id":"short"}',
            '{"partitions":{"0":[1]},"adding_replicas":{"0":1}}',
        ],
    )
    def test_the_wrong_shape_is_named(self, text: str) -> None:
        with pytest.raises(CorruptData, match="/brokers/topics/T"):
            topics.decode(text.encode(), "/brokers/topics/T")

    def test_paths(self) -> None:
        assert topics.topic_path("T") == "/brokers/topics/T"
        assert topics.partitions_path("T") == "/brokers/topics/T/partitions"
        assert partition_state.path(TopicPartition("T", 4)) == "/brokers/topics/T/partitions/4/state"


class TestPartitionState:
    def test_round_trip(self) -> None:
        state = PartitionState(leader=1, leader_epoch=2, isr=(1, 3), controller_epoch=4, partition_epoch=9)
        written = partition_state.encode(state)
        assert written == b'{"version":1,"leader":1,"leader_epoch":2,"controller_epoch":4,"isr":[1,3]}'
        assert partition_state.decode(written, 9) == state

    def test_recovery_is_written_only_while_it_lasts(self) -> None:
        state = PartitionState(1, 2, (1,), 4, 0, recovering=True)
        written = partition_state.encode(state)
        assert json.loads(written)["leader_recovery_state"] == 1
        assert partition_state.decode(written, 0) == state

    KAFKAS = '{"controller_epoch":%s,"leader":%s,"version":1,"leader_epoch":%s,"isr":%s}'
    OURS = '{"version":1,"leader":%s,"leader_epoch":%s,"controller_epoch":%s,"isr":%s}'
    # Number, number, number, list: usual ones, odd ones, and what is no state.
    VALUES = (
        ("4", "1", "2", "[1,3]"),
        ("0", "-1", "0", "[]"),
        ("123456789", "2147483647", "0", "[1001,1002]"),
        ("4", "1", "2", "[1, 3]"),
        ("4", "1", "2", "[-1]"),
        ("4 ", "1", "2", "[1]"),
        ("4", "-0", "2", "[1]"),
        ("4", "12345678901234567890", "2", "[1]"),
        ("4", "1", "2", "[1]}\n"),
        ("4", "01", "2", "[1]"),
        ("4", "1.0", "2", "[1]"),
        ("4", "1e0", "2", "[1]"),
        ("4", "true", "2", "[1]"),
        ("4", "null", "2", "[1]"),
        ("4", '"1"', "2", "[1]"),
        ("4", "1", "2", "[1,]"),
        ("4", "1", "2", "[01]"),
        ("4", "1", "2", "[true]"),
        ("4", "1", "2", "[1.5]"),
        ("4", "1", "2", "1"),
        ("4", "1", "2", '[1],"leader":7'),
        ("4", "1", "2", '[1],"leader_recovery_state":1'),
        ("4", "1", "2", '[1],"more":{}'),
        ("4", "\u0661", "2", "[1]"),
    )

    @pytest.mark.parametrize("form", [KAFKAS, OURS])
    @pytest.mark.parametrize("values", VALUES)
    def test_the_short_way_reads_what_the_json_parser_reads(
        self, form: str, values: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = (form % values).encode()

        def read() -> PartitionState | str:
            try:
                return partition_state.decode(data, 9, "/s")
            except CorruptData as problem:
                return str(problem)

        found = read()
        never = re.compile(b"(?!)")
        monkeypatch.setattr(partition_state, "OURS", never)
        monkeypatch.setattr(partition_state, "KAFKAS", never)
        assert found == read()
        if not isinstance(found, str):
            assert all(type(number) is int for number in (*found[:2], *found.isr, *found[3:5]))

    def test_both_usual_forms_take_the_short_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partition_state, "decode_any", None)
        for form in (self.KAFKAS, self.OURS):
            for values in self.VALUES[:2]:
                partition_state.decode((form % values).encode(), 9)

    def test_bad_state(self) -> None:
        with pytest.raises(CorruptData, match="'isr'"):
            partition_state.decode(b'{"leader":1,"leader_epoch":0,"controller_epoch":0,"isr":"1"}', 0)


class TestConfigs:
    def test_round_trip_and_the_empty_entity(self) -> None:
        assert configs.encode({}) == b'{"version":1,"config":{}}'
        assert configs.decode(configs.encode({"a": "é"})) == {"a": "é"}
        assert configs.decode(b"") == {}

    @pytest.mark.parametrize("text", ['{"version":2,"config":{}}', '{"version":1,"config":{"a":1}}', '{"version":1}'])
    def test_bad(self, text: str) -> None:
        with pytest.raises(CorruptData, match="/config/topics/t"):
            configs.decode(text.encode(), configs.topic_path("t"))

    def test_paths_of_every_kind_of_entity(self) -> None:
        assert configs.topic_path("t") == "/config/topics/t"
        assert configs.broker_path(None) == "/config/brokers/<default>"
        assert configs.broker_path(3) == "/config/brokers/3"

    @pytest.mark.parametrize("name", ["a~b*c+d e/f", "CN=x,OU=y", "ünï"])
    def test_sanitized_names_are_safe_and_come_back(self, name: str) -> None:
        written = configs.sanitize(name)
        assert set(written) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_%")
        assert configs.desanitize(written) == name


class TestConfigChanges:
    def test_version_2(self) -> None:
        assert config_changes.encode("topics", "T") == b'{"version":2,"entity_path":"topics/T"}'
        assert config_changes.decode(b'{"version":2,"entity_path":"users/U/clients/C"}') == ("users", "U/clients/C")

    def test_version_1_is_still_read(self) -> None:
        old = b'{"version":1,"entity_type":"clients","entity_name":"c"}'
        assert config_changes.decode(old) == ("clients", "c")

    @pytest.mark.parametrize(
        "text",
        ["x", '{"version":3}', '{"version":2,"entity_path":"topics"}', '{"version":2,"entity_path":"odd/T"}',
         '{"version":2,"entity_path":"topics/"}', '{"version":1,"entity_type":"users","entity_name":"u"}'],
    )  # fmt: skip
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(CorruptData):
            config_changes.decode(text.encode())


def test_reassignments() -> None:
    targets = {TopicPartition("T", 0): (1, 2), TopicPartition("T", 1): (2,)}
    written = reassignments.encode(targets)
    assert written.startswith(b'{"version":1,"partitions":[{"topic":"T","partition":0,"replicas":[1,2]},')
    assert reassignments.decode(written) == targets
    with pytest.raises(CorruptData, match="replicas"):
        reassignments.decode(b'{"version":1,"partitions":[{"topic":"T","partition":0}]}')


@pytest.mark.parametrize("module", [preferred_election, isr_notifications])
def test_lists_of_partitions(module: object) -> None:
    assert module in (preferred_election, isr_notifications)
    partitions = [TopicPartition("T", 1), TopicPartition("S", 0)]
    encode = preferred_election.encode if module is preferred_election else isr_notifications.encode
    decode = preferred_election.decode if module is preferred_election else isr_notifications.decode
    written = encode(partitions)
    assert written == b'{"version":1,"partitions":[{"topic":"T","partition":1},{"topic":"S","partition":0}]}'
    assert decode(written) == partitions
    assert decode(encode(partitions * 2)) == partitions
    with pytest.raises(CorruptData):
        decode(b'{"version":1,"partitions":["T"]}')


def test_log_dir_events() -> None:
    assert log_dir_events.encode(4) == b'{"version":1,"broker":4,"event":1}'
    assert log_dir_events.decode(b'{"version":1,"broker":4,"event":1}') == 4
    with pytest.raises(CorruptData, match="event"):
        log_dir_events.decode(b'{"version":1,"broker":4,"event":2}')


def test_producer_ids() -> None:
    first = producer_ids.first_block(1)
    assert producer_ids.encode(first) == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    assert producer_ids.decode(producer_ids.encode(first)) == first
    assert producer_ids.decode(b"") is None
    assert first.following(2) == producer_ids.ProducerIdBlock(2, 1000, 1999)
    assert producer_ids.ProducerIdBlock(1, 0, 2**63 - 1).following(1) is None


def test_cluster_id() -> None:
    made = cluster_id.from_uuid(TOPIC_ID)
    assert cluster_id.encode(made) == b'{"version":"1","id":"ASNFZ4mrze8BI0VniavN7w"}'
    assert cluster_id.decode(b'{"id":"abc","version":1}') == "abc"
    with pytest.raises(CorruptData):
        cluster_id.decode(b'{"version":"1","id":""}')


def test_feature() -> None:
    assert feature.encode(feature.Features()) == b'{"version":2,"status":1,"features":{}}'
    old = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert feature.decode(old) == feature.Features(0, {"f": 3}, version=1)
    assert feature.encode(feature.Features(1, {"f": 3}, version=1)) == (
        b'{"version":1,"status":1,"features":{"f":{"max_version_level":3,"min_version_level":3}}}'
    )
    with pytest.raises(CorruptData):
        feature.decode(b'{"version":3,"status":1,"features":{}}')


def test_paths() -> None:
    assert delete_topics.path("T") == "/admin/delete_topics/T"
    assert "/config/ips" in paths.PERSISTENT
    assert len(paths.PERSISTENT) == 14
    assert paths.ancestors("/a/b/c") == ["/a", "/a/b"]
    assert paths.name("/a/b/c") == "c"
