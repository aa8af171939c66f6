"""From candidate to controller and back: standing for election, taking over, resigning.

Rule 1: a broker acts as controller exactly between a finished take-over and the next resignation.
Rule 2: a broker that resigns forgets everything and drops its senders before it stands again.
Rule 3: /controller is watched all the time, so that a vacancy is never missed.
"""

from logyard.broker.controller import effects
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import ClosePeer, Steps
from logyard.broker.controller.failover import controller_election, takeover


def stand(context: ControllerContext) -> Steps[None]:
    """Stand for controller, and take over if elected."""
    if context.is_active:
        return
    if (yield from controller_election.elect(context)):
        yield from takeover.take_over(context)


def resign(context: ControllerContext) -> Steps[None]:
    """Stop being controller in memory; nothing is written."""
    if context.is_active:
        yield from effects.note("no longer controller", epoch=context.epoch)
    yield from effects.perform(*(ClosePeer(broker) for broker in context.reachable_ids()))
    context.reset()


def on_controller_changed(context: ControllerContext) -> Steps[None]:
    """Handle /controller: resign if it is no longer ours, stand for election if it is vacant."""
    ours = yield from controller_election.look(context)
    if context.is_active and not ours:
        yield from resign(context)
    if context.active_id == controller_election.NOBODY:
        yield from stand(context)
