"""DeleteTopics: the request that leaves a znode in /admin/delete_topics; deletion.py does the rest.

Rule: a topic that is queued already counts as success, as it does for whoever asked first (facts §7).
"""

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Answer, Steps
from logyard.broker.controller.events import DeleteTopics, Outcome
from logyard.broker.errors import ErrorCode
from logyard.broker.znodes import delete_topics
from logyard.broker.znodes.ops import Create, ZkCode


def on_request(context: ControllerContext, request: DeleteTopics) -> Steps[None]:
    """Answer DeleteTopics; the topics are still there when the answer goes out."""
    outcomes: dict[str, Outcome] = {}
    known = [name for name in dict.fromkeys(request.topics) if name in context.topics]
    if not context.settings.delete_topic_enable:
        disabled = Outcome(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled (delete.topic.enable).")
        outcomes = dict.fromkeys(request.topics, disabled)
        known = []
    results = yield from fencing.write(context, [[Create(delete_topics.path(name))] for name in known])
    for name, result in zip(known, results, strict=True):
        if result[0].code in (ZkCode.OK, ZkCode.NODE_EXISTS):
            outcomes[name] = Outcome()
        else:
            why = f"ZooKeeper refused the request: {result[0].code.value}"
            outcomes[name] = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, why)
    unknown = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist.")
    yield from effects.perform(Answer({name: outcomes.get(name, unknown) for name in request.topics}))
