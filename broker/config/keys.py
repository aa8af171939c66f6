"""Every key that Apache Kafka 3.9 knows for a broker in ZooKeeper mode, with type, default and range.

The KRaft-only keys are left out, but for `node.id` and `process.roles`. Security has its own table
(security_keys.py). Which keys Logyard acts on is in acted_on.py.
"""

from logyard.broker.config.addresses import ADDRESS_COUNTS
from logyard.broker.config.key_types import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    NOT_EMPTY,
    Allowed,
    ConfigType,
    Key,
    any_of,
    at_least,
    between,
    list_of,
    one_of,
)
from logyard.broker.config.security_keys import AUTHORIZER_TLS_KEYS, SECURITY_KEYS

BOOLEAN, STRING, INT, SHORT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.SHORT
LONG, DOUBLE, LIST, CLASS = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST, ConfigType.CLASS

MIB = 1024 * 1024
_HOUR_MS = 3_600_000
_NOT_ZERO = Allowed("-1 or at least 1", lambda value: isinstance(value, int) and value != 0)
_GZIP_LEVEL = Allowed("1 to 9, or -1 for the codec's own", lambda value: value == -1 or value in range(1, 10))
# The two selectors that Apache Kafka ships; other Java classes cannot be loaded here.
REPLICA_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

GENERAL_KEYS = (
    Key("broker.id", INT, -1),
    Key("node.id", INT),
    Key("process.roles", LIST, ()),
    Key("broker.id.generation.enable", BOOLEAN, True),
    Key("reserved.broker.max.id", INT, 1000, at_least(0)),
    Key("broker.rack", STRING),
    Key("background.threads", INT, 10, at_least(1)),
    Key("num.io.threads", INT, 8, at_least(1)),
    Key("num.network.threads", INT, 3, at_least(1)),
    Key("queued.max.requests", INT, 500, at_least(1)),
    Key("queued.max.request.bytes", LONG, -1),
    Key("request.timeout.ms", INT, 30_000),
    Key("delete.topic.enable", BOOLEAN, True),
    Key("auto.create.topics.enable", BOOLEAN, True),
    Key("message.max.bytes", INT, 1_048_588, at_least(0)),
    Key("compression.type", STRING, "producer", one_of(*COMPRESSION_TYPES)),
    Key("compression.gzip.level", INT, -1, _GZIP_LEVEL),
    Key("compression.lz4.level", INT, 9, between(1, 17)),
    Key("compression.zstd.level", INT, 3, between(-131072, 22)),
    Key("create.topic.policy.class.name", CLASS),
    Key("alter.config.policy.class.name", CLASS),
    Key("early.start.listeners", STRING),
    Key("unstable.api.versions.enable", BOOLEAN, False),
    Key("unstable.feature.versions.enable", BOOLEAN, False),
    Key("eligible.leader.replicas.enable", BOOLEAN, False),
    Key("config.providers", LIST, ()),
    Key("max.request.partition.size.limit", INT, 2000, at_least(1)),
    Key("fetch.max.bytes", INT, 55 * MIB, at_least(1024)),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0)),
    Key("telemetry.max.bytes", INT, MIB, at_least(1)),
    Key("metric.reporters", LIST, ()),
    Key("metrics.num.samples", INT, 2, at_least(1)),
    Key("metrics.sample.window.ms", LONG, 30_000, at_least(0)),
    Key("metrics.recording.level", STRING, "INFO", one_of("INFO", "DEBUG", "TRACE")),
    Key("auto.include.jmx.reporter", BOOLEAN, True),
    Key("kafka.metrics.reporters", LIST, ()),
    Key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1)),
)

ZOOKEEPER_KEYS = (
    Key("zookeeper.connect", STRING, None, NOT_EMPTY, required=True),
    Key("zookeeper.session.timeout.ms", INT, 18_000, at_least(1)),
    Key("zookeeper.connection.timeout.ms", INT),
    Key("zookeeper.max.in.flight.requests", INT, 10, at_least(1)),
    Key("zookeeper.set.acl", BOOLEAN, False),
    Key("zookeeper.metadata.migration.enable", BOOLEAN, False),
    Key("zookeeper.metadata.migration.min.batch.size", INT, 200, at_least(1)),
)

NETWORK_KEYS = (
    # Kafka's own default, PLAINTEXT://:9092, listens on every interface.
    Key("listeners", STRING, "PLAINTEXT://127.0.0.1:9092", NOT_EMPTY),
    Key("advertised.listeners", STRING),
    Key(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    ),
    Key("inter.broker.listener.name", STRING),
    Key("control.plane.listener.name", STRING),
    Key("controller.listener.names", STRING),
    Key("controller.quorum.voters", LIST, ()),
    Key("controller.quorum.bootstrap.servers", LIST, ()),
    Key("inter.broker.protocol.version", STRING, "3.9-IV0"),
    # Kafka's default is 102,400. Over loopback a segment has 64 KB; one that comes alone is confirmed after 40 ms.
    Key("socket.send.buffer.bytes", INT, 163_840),
    # Kafka's default is 102,400: with it producers of small batches take a tenth longer, and far ones much longer.
    Key("socket.receive.buffer.bytes", INT, -1),
    Key("socket.request.max.bytes", INT, 100 * MIB, at_least(1)),
    Key("socket.listen.backlog.size", INT, 50, at_least(1)),
    Key("connections.max.idle.ms", LONG, 600_000),
    Key("connection.failed.authentication.delay.ms", INT, 100, at_least(0)),
    Key("max.connections", INT, INT_MAX, at_least(0)),
    Key("max.connections.per.ip", INT, INT_MAX, at_least(0)),
    Key("max.connections.per.ip.overrides", STRING, "", ADDRESS_COUNTS),
    Key("max.connection.creation.rate", INT, INT_MAX, at_least(0)),
    Key("socket.connection.setup.timeout.ms", LONG, 10_000),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30_000),
)

LOG_KEYS = (
    Key("log.dir", STRING, "/tmp/kafka-logs", NOT_EMPTY),
    Key("log.dirs", STRING),
    Key("num.partitions", INT, 1, at_least(1)),
    Key("log.segment.bytes", INT, 1_073_741_824, at_least(14)),
    Key("log.roll.ms", LONG, None, at_least(1)),
    Key("log.roll.hours", INT, 168, at_least(1)),
    Key("log.roll.jitter.ms", LONG, None, at_least(0)),
    Key("log.roll.jitter.hours", INT, 0, at_least(0)),
    Key("log.retention.ms", LONG, None, _NOT_ZERO),
    Key("log.retention.minutes", INT, None, _NOT_ZERO),
    Key("log.retention.hours", INT, 168, _NOT_ZERO),
    Key("log.retention.bytes", LONG, -1),
    Key("log.retention.check.interval.ms", LONG, 300_000, at_least(1)),
    Key("log.initial.task.delay.ms", LONG, 30_000, at_least(0)),
    Key("log.cleanup.policy", LIST, ("delete",), any_of("compact", "delete")),
    Key("log.index.size.max.bytes", INT, 10 * MIB, at_least(4)),
    Key("log.index.interval.bytes", INT, 4096, at_least(0)),
    Key("log.flush.interval.messages", LONG, LONG_MAX, at_least(1)),
    Key("log.flush.interval.ms", LONG),
    Key("log.flush.scheduler.interval.ms", LONG, LONG_MAX),
    Key("log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0)),
    Key("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0)),
    Key("log.segment.delete.delay.ms", LONG, 60_000, at_least(0)),
    Key("log.preallocate", BOOLEAN, False),
    Key("num.recovery.threads.per.data.dir", INT, 1, at_least(1)),
    Key("min.insync.replicas", INT, 1, at_least(1)),
    Key("log.message.format.version", STRING, "3.0-IV1"),
    Key("log.message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime")),
    Key("log.message.timestamp.difference.max.ms", LONG, LONG_MAX, at_least(0)),
    Key("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0)),
    Key("log.message.timestamp.after.max.ms", LONG, LONG_MAX, at_least(0)),
    Key("log.message.downconversion.enable", BOOLEAN, True),
    Key("log.dir.failure.timeout.ms", LONG, 30_000, at_least(1)),
    Key("log.cleaner.enable", BOOLEAN, True),
    Key("log.cleaner.threads", INT, 1, at_least(0)),
    Key("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX),
    Key("log.cleaner.dedupe.buffer.size", LONG, 128 * MIB),
    Key("log.cleaner.io.buffer.size", INT, 512 * 1024, at_least(0)),
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9),
    Key("log.cleaner.backoff.ms", LONG, 15_000, at_least(0)),
    Key("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1)),
    Key("log.cleaner.delete.retention.ms", LONG, 24 * _HOUR_MS, at_least(0)),
    Key("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0)),
    Key("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1)),
)

REPLICATION_KEYS = (
    Key("default.replication.factor", INT, 1),
    Key("replica.lag.time.max.ms", LONG, 30_000),
    Key("replica.socket.timeout.ms", INT, 30_000),
    Key("replica.socket.receive.buffer.bytes", INT, 65_536),
    Key("replica.fetch.max.bytes", INT, MIB, at_least(0)),
    Key("replica.fetch.wait.max.ms", INT, 500),
    Key("replica.fetch.backoff.ms", INT, 1000, at_least(0)),
    Key("replica.fetch.min.bytes", INT, 1),
    Key("replica.fetch.response.max.bytes", INT, 10 * MIB, at_least(0)),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000),
    Key("replica.selector.class", STRING, None, one_of(*REPLICA_SELECTORS)),
    Key("num.replica.fetchers", INT, 1),
    Key("num.replica.alter.log.dirs.threads", INT),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000),
    Key("producer.purgatory.purge.interval.requests", INT, 1000),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1),
    Key("auto.leader.rebalance.enable", BOOLEAN, True),
    Key("leader.imbalance.per.broker.percentage", INT, 10),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1)),
    Key("unclean.leader.election.enable", BOOLEAN, False),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1)),
    Key("controller.socket.timeout.ms", INT, 30_000),
    Key("controlled.shutdown.enable", BOOLEAN, True),
    Key("controlled.shutdown.max.retries", INT, 3),
    Key("controlled.shutdown.retry.backoff.ms", LONG, 5000),
)

GROUP_KEYS = (
    Key("group.min.session.timeout.ms", INT, 6000),
    Key("group.max.session.timeout.ms", INT, 1_800_000),
    Key("group.initial.rebalance.delay.ms", INT, 3000),
    Key("group.max.size", INT, INT_MAX, at_least(1)),
    Key("group.coordinator.rebalance.protocols", LIST, ("classic",), list_of("classic", "consumer", "share")),
    Key("group.coordinator.threads", INT, 1, at_least(1)),
    Key("group.coordinator.append.linger.ms", INT, 10, at_least(0)),
    Key("group.coordinator.new.enable", BOOLEAN, False),
    Key("group.consumer.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1)),
    Key("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1)),
    Key("group.consumer.max.size", INT, INT_MAX, at_least(1)),
    Key("group.consumer.assignors", LIST, ("uniform", "range")),
    Key("group.consumer.migration.policy", STRING, "disabled"),
    Key("offset.metadata.max.bytes", INT, 4096),
    Key("offsets.load.buffer.size", INT, 5 * MIB, at_least(1)),
    Key("offsets.topic.replication.factor", SHORT, 3, at_least(1)),
    Key("offsets.topic.num.partitions", INT, 50, at_least(1)),
    Key("offsets.topic.segment.bytes", INT, 100 * MIB, at_least(1)),
    Key("offsets.topic.compression.codec", INT, 0, between(0, 4)),
    Key("offsets.retention.minutes", INT, 10_080, at_least(1)),
    Key("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1)),
    Key("offsets.commit.timeout.ms", INT, 5000, at_least(1)),
    Key("offsets.commit.required.acks", SHORT, -1),
    Key("transactional.id.expiration.ms", INT, 604_800_000, at_least(1)),
    Key("transaction.max.timeout.ms", INT, 900_000, at_least(1)),
    Key("transaction.state.log.min.isr", INT, 2, at_least(1)),
    Key("transaction.state.log.load.buffer.size", INT, 5 * MIB, at_least(1)),
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1)),
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1)),
    Key("transaction.state.log.segment.bytes", INT, 100 * MIB, at_least(1)),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1)),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, _HOUR_MS, at_least(1)),
    Key("transaction.partition.verification.enable", BOOLEAN, True),
    Key("producer.id.expiration.ms", INT, 86_400_000, at_least(1)),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1)),
)

QUOTA_KEYS = (
    Key("quota.window.num", INT, 11, at_least(1)),
    Key("quota.window.size.seconds", INT, 1, at_least(1)),
    Key("replication.quota.window.num", INT, 11, at_least(1)),
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1)),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1)),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1)),
    Key("controller.quota.window.num", INT, 11, at_least(1)),
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1)),
    Key("client.quota.callback.class", CLASS),
    # Set through AlterConfigs only; Kafka does not read these three from server.properties.
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0)),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0)),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, at_least(0)),
)

_RSM = "remote.log.storage.manager"
_RLMM = "remote.log.metadata.manager"
TIERED_STORAGE_KEYS = (
    Key("log.local.retention.bytes", LONG, -2, at_least(-2)),
    Key("log.local.retention.ms", LONG, -2, at_least(-2)),
    Key("remote.log.storage.system.enable", BOOLEAN, False),
    Key(f"{_RSM}.class.name", STRING),
    Key(f"{_RSM}.class.path", STRING),
    Key(f"{_RSM}.impl.prefix", STRING, "rsm.config."),
    Key(f"{_RLMM}.class.name", STRING),
    Key(f"{_RLMM}.class.path", STRING),
    Key(f"{_RLMM}.impl.prefix", STRING, "rlmm.config."),
    Key(f"{_RLMM}.listener.name", STRING),
    Key("remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0)),
    Key("remote.log.index.file.cache.total.size.bytes", LONG, 1024 * MIB, at_least(1)),
    Key("remote.log.manager.thread.pool.size", INT, 10, at_least(1)),
    Key("remote.log.manager.copier.thread.pool.size", INT, -1),
    Key("remote.log.manager.expiration.thread.pool.size", INT, -1),
    Key("remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1)),
    Key("remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1)),
    Key("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, at_least(1)),
    Key("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5)),
    Key("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, at_least(1)),
    Key("remote.log.manager.copy.quota.window.num", INT, 11, at_least(1)),
    Key("remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1)),
    Key("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, at_least(1)),
    Key("remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1)),
    Key("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1)),
    Key("remote.log.reader.threads", INT, 10, at_least(1)),
    Key("remote.log.reader.max.pending.tasks", INT, 100, at_least(1)),
    Key("remote.fetch.max.wait.ms", INT, 500, at_least(1)),
)

OWN_KEYS = (
    # Where metrics, health and segment leases are served; port 0: any free one.
    Key("http.listener", STRING, "127.0.0.1:0", NOT_EMPTY),
    Key("http.advertised.listener", STRING),
    Key("http.token.file", STRING),
    Key("http.security.listener", STRING),
    Key("http.metrics.open", BOOLEAN, False),
    Key("logyard.jaas.config.file", STRING),
    Key("logyard.validate.records", BOOLEAN, False),
    Key("logyard.queued.max.answer.bytes", LONG, 1 << 30),
)

KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        *GENERAL_KEYS,
        *ZOOKEEPER_KEYS,
        *NETWORK_KEYS,
        *LOG_KEYS,
        *REPLICATION_KEYS,
        *GROUP_KEYS,
        *QUOTA_KEYS,
        *TIERED_STORAGE_KEYS,
        *SECURITY_KEYS,
        *AUTHORIZER_TLS_KEYS,
        *OWN_KEYS,
    )
}
