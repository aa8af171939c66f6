"""`logyard brokers|leaders|configs|zk|groups` on Apache Kafka: the same tests as on our brokers."""

# ruff: noqa: F401  (the tests are run from here)
from tests.integration.commands.test_commands import (
    run,
    test_brokers_by_requests_and_znodes,
    test_groups_from_the_first_look_to_the_end,
    test_leaders_go_back_to_the_preferred,
    test_quotas,
    test_settings_of_topics_and_brokers,
    test_znodes_are_checked_and_mended,
)
