"""`logyard reassign` on Apache Kafka: the same tests as on our brokers.

Not the throttled move: it reads the metadata at once after a change, which Kafka's brokers learn of a moment later.
test_tools.py moves replicas under a throttle on both.
"""

# ruff: noqa: F401  (the tests are run from here)
from tests.integration.commands.test_commands_reassign import (
    run,
    test_a_move_by_znodes,
    test_a_proposal,
    topic,
)
