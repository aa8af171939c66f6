"""What the suite asks of Kafka's `bin/kafka-topics.sh`: create, alter and delete a topic, by a stock client."""

import argparse

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", required=True)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("--create", "--alter", "--delete"):
        action.add_argument(name, action="store_true")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=-1)
    parser.add_argument("--replication-factor", type=int, default=-1)
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.bootstrap_server, "broker.address.family": "v4"})
    if options.create:
        config = dict(pair.split("=", 1) for pair in options.config)
        topic = NewTopic(options.topic, options.partitions, options.replication_factor, config=config)
        done = admin.create_topics([topic])
    elif options.alter:
        done = admin.create_partitions([NewPartitions(options.topic, options.partitions)])
    else:
        done = admin.delete_topics([options.topic])
    done[options.topic].result(30)


if __name__ == "__main__":
    main()
