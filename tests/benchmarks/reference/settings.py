"""What the brokers of a comparison run with."""

# kafka-run-class.sh and kafka-server-start.sh of 3.9
KAFKA_JVM = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
CONFIG = {
    "log.segment.delete.delay.ms": "1000",
    # A group's first members come together; later rebalances do not wait.
    "group.initial.rebalance.delay.ms": "2000",
    # A machine that is busy with the load is not to look like a dead broker.
    "zookeeper.session.timeout.ms": "18000",
}
