"""`logyard reassign` on Apache Kafka: the same tests as on our brokers."""

# ruff: noqa: F401  (the tests are run from here)
from tests.integration.test_commands_reassign import (
    run,
    test_a_move_by_znodes,
    test_a_proposal,
    test_a_throttled_move,
    topic,
)
