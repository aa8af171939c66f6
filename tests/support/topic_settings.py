"""The names of a topic's settings: those of Kafka 2.5, those that came since, and those that mean nothing here."""

# What Kafka 2.5 has, and what came until 3.9.
OF_2_5 = {
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}
SINCE = {
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "local.retention.bytes",
    "local.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "remote.storage.enable",
}
# Tiered storage, which there is not: the first is refused, the others mean nothing without it.
TIERED = {"remote.storage.enable", "local.retention.bytes", "local.retention.ms"}
# Ignored by Kafka since 3.0 (KIP-724): records are v2.
IGNORED = {
    "message.format.version",
    "compression.lz4.level",  # not Kafka's doing: the library's lz4 has one level
}
