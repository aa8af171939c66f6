"""The paths that all brokers create at start if they are missing (facts §1)."""

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE_IDS = "/brokers/seqid"
CONSUMERS = "/consumers"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
ISR_NOTIFICATIONS = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_IDS = "/latest_producer_id_block"

PERSISTENT: tuple[str, ...] = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_IDS,
    ISR_NOTIFICATIONS,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)


def ancestors(path: str) -> list[str]:
    """Return the paths above `path` without the root, the highest first: /a/b/c gives /a, /a/b."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts))]


def name(path: str) -> str:
    """Return the last part of a path."""
    return path.rsplit("/", 1)[-1]
