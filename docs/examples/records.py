"""Records in DAGs: written, read, waited for, and a DAG that runs when some arrive; a notifier; the decorators."""

from airflow.sdk import DAG, Asset, AssetWatcher, task

from logyard.operators.consuming import CommitOffsetsOperator, ConsumeFromTopicOperator
from logyard.operators.copying import CopyRecordsOperator
from logyard.operators.notifier import TopicNotifier
from logyard.operators.producing import ProduceToTopicOperator
from logyard.operators.sensors.records import AwaitRecordFunctionSensor, AwaitRecordSensor
from logyard.operators.triggers.arrivals import RecordsArrivedEvent


def store(message):
    print(message.key(), message.value())


def orders():
    for number in range(3):
        yield f"customer-{number}", {"order": number}


with DAG("example_produce", schedule=None, on_failure_callback=TopicNotifier(topic="airflow.events")):
    ProduceToTopicOperator(task_id="produce", topic="orders", producer_function=orders, transactional=True)

with DAG("example_consume", schedule=None):
    ConsumeFromTopicOperator(task_id="read", topics=["orders"], group="nightly", apply_function=store)

# Functions get decoded keys and values; value_format="registry" decodes by the connection's schema registry.
with DAG("example_consume_decoded", schedule=None):
    ConsumeFromTopicOperator(
        task_id="read",
        topics=["orders"],
        group="decoded",
        key_format="text",
        value_format="json",
        apply_function=lambda message: print(message.key(), len(message.value())),
    )

# What could not be worked on is tried again: the newest hundred records of a dead-letter topic.
with DAG("example_copy_records", schedule=None):
    CopyRecordsOperator(task_id="copy", topic="orders", to_topic="again", start="newest", limit=100)

# Offsets are committed only after what follows has succeeded; a DAG run begins when records arrive.
trigger = RecordsArrivedEvent(topics=["orders"], group="orders-dag")
arrived = Asset("kafka://broker-1:9092/orders", watchers=[AssetWatcher(name="arrived", trigger=trigger)])

with DAG("example_records_arrived", schedule=[arrived], max_active_runs=1, catchup=False):
    read = ConsumeFromTopicOperator(
        task_id="read", topics=["orders"], group="orders-dag", apply_function=store, commit_cadence="never"
    )
    commit = CommitOffsetsOperator(task_id="commit", group="orders-dag", offsets=read.output)
    read >> commit

with DAG("example_await_record", schedule=None):
    # apply_function="mine.functions.accept" would accept only some: the triggerer imports it by this path, so it is
    # in a module, not in a file of DAGs.
    AwaitRecordSensor(task_id="wait", topics=["orders"], group="waiting", timeout=60, deferrable=True)

with DAG("example_await_record_function", schedule=None):
    AwaitRecordFunctionSensor(
        task_id="each",
        topics=["orders"],
        group="each",
        event_triggered_function=lambda found, **context: print(found["record"]["value"]),
        timeout=60,
        soft_fail=True,
    )

with DAG("example_decorators", schedule=None):

    @task.logyard_produce(topic="orders")
    def write():
        yield from orders()

    @task.logyard_consume(topics=["orders"], group="decorated")
    def count(messages):
        print(len(messages), "records")

    write() >> count()
