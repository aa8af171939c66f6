"""What holds our brokers, on Apache Kafka's: the same tests of clients, administration and commands, unchanged."""

# ruff: noqa: F401  (the tests are run from here)
from tests.integration.clients.test_clients import (
    test_admin_describes_alters_grows_and_deletes,
    test_aiokafka_produces_and_consumes_in_a_group,
    test_bad_config_is_refused_with_its_name,
    test_compacted_topic_refuses_a_record_without_a_key,
    test_group_of_two_shares_partitions_and_resumes,
    test_kafka_python_produces_and_consumes,
    test_librdkafka_round_trip_and_identical_replicas,
    test_topic_is_created_by_use,
    topic,
)
from tests.integration.controller.test_administration import (
    client,
    test_a_topics_life,
    test_offsets_groups_records_and_sizes,
    test_refusals_carry_the_brokers_code,
    test_replicas_move_by_a_plan_under_a_throttle,
    test_what_does_not_exist_is_said_soon,
    test_zookeeper_is_read_as_the_brokers_wrote_it,
)
