"""A broker loads no client library; whoever wants one later in the same process has all of it."""

import subprocess
import sys

BROKER = """
import sys
import logyard.broker.__main__
from logyard.broker.protocol import codec
codec.encode_request(18, 3, 1, "x", {"client_software_name": "a", "client_software_version": "1"})
print([name for name in ("kafka", "kafka.admin", "aiokafka", "aiokafka.client") if name in sys.modules])
"""
LATER = """
import kafka, kafka.protocol.schemas, aiokafka, aiokafka.record
from logyard.broker.records import reader
print(kafka.KafkaAdminClient.__name__, kafka.protocol.schemas.load_json.__name__, aiokafka.AIOKafkaConsumer.__name__)
print(aiokafka.errors.CorruptRecordException is reader.CorruptRecordException, sys.modules["kafka"] is kafka)
"""
BELOW = """
import kafka.protocol.admin
import sys
module = sys.modules["kafka.protocol.admin"]
print(module is kafka.protocol.admin, module.__spec__.origin == module.__file__, kafka.KafkaAdminClient.__name__)
"""
EARLIER = """
import sys
import kafka, aiokafka
before = sys.modules["kafka"]
import logyard.broker.records.decode, logyard.broker.protocol.schema
print(sys.modules["kafka"] is before)
"""


def run(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_broker_starts_without_the_clients_it_does_not_use() -> None:
    assert run(BROKER) == ["[]"]


def test_a_later_import_has_the_whole_library() -> None:
    assert run(BROKER + LATER)[1:] == ["KafkaAdminClient load_json AIOKafkaConsumer", "True True"]


def test_a_later_import_of_a_part_has_the_front_page_run_first() -> None:
    assert run(BROKER + BELOW)[1:] == ["True True KafkaAdminClient"]


def test_a_library_that_is_there_already_stays() -> None:
    assert run(EARLIER) == ["True"]
