"""/admin/delete_topics/T: a request to delete a topic; its data is empty (facts §7)."""

from logyard.broker.znodes.paths import DELETE_TOPICS

PATH = DELETE_TOPICS


def path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"
