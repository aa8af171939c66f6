"""Producer ids: blocks of a thousand, allocated from /latest_producer_id_block by conditional writes.

Rule 1: a broker gets a block only after the znode has it, so that no id is given out twice.
Rule 2: the checks come in the order of facts §22: BROKER_ID_NOT_REGISTERED (unknown broker), then STALE_BROKER_EPOCH.
"""

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Answer, Steps
from logyard.broker.controller.events import AllocateProducerIds, ProducerIdBlock
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.znodes import controller, producer_ids
from logyard.broker.znodes.ops import Create, SetData, ZkOp

_ROUNDS_MAX = 20


def on_request(context: ControllerContext, request: AllocateProducerIds) -> Steps[None]:
    """Answer AllocateProducerIds."""
    broker = context.brokers.get(request.broker_id)
    if broker is None:
        answer = ProducerIdBlock(ErrorCode.BROKER_ID_NOT_REGISTERED)
    elif broker.epoch != request.broker_epoch:
        answer = ProducerIdBlock(ErrorCode.STALE_BROKER_EPOCH)
    else:
        answer = yield from _allocate(context, request.broker_id)
    yield from effects.perform(Answer(answer))


def _allocate(context: ControllerContext, broker_id: int) -> Steps[ProducerIdBlock]:
    for _ in range(_ROUNDS_MAX):
        found, epoch = yield from effects.read([producer_ids.PATH, controller.EPOCH_PATH])
        now_ms = yield from effects.now_ms()
        try:
            block = producer_ids.next_block(found, epoch, broker_id, now_ms)
        except CorruptData as problem:
            yield from effects.note("producer ids cannot be given out", level="error", reason=str(problem))
            return ProducerIdBlock(ErrorCode.UNKNOWN_SERVER_ERROR)
        if block is None:
            yield from effects.note("all producer ids are used up", level="error")
            return ProducerIdBlock(ErrorCode.UNKNOWN_SERVER_ERROR)
        data = producer_ids.encode(block)
        op: ZkOp = Create(producer_ids.PATH, data)
        if found is not None:
            op = SetData(producer_ids.PATH, data, found.version)
        if (yield from fencing.write_one(context, op)).ok:
            return ProducerIdBlock(start=block.start, length=block.size)
    yield from effects.note("producer ids: the znode changed under every attempt", level="error")
    return ProducerIdBlock(ErrorCode.UNKNOWN_SERVER_ERROR)
