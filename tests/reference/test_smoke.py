"""What `make test` runs beside Apache Kafka: one broker of its and two of ours in one cluster, either in control."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.reference.both_kinds import BothKinds

# ruff: noqa: F401  (the tests are run from here)
from tests.reference.test_dump_log import (
    directory,
    test_every_batch_is_valid_and_every_record_is_read,
    test_indexes_point_where_they_should,
)
from tests.reference.test_one_cluster import (
    controlled,
    test_controller_of_either_kind_grows_moves_and_deletes,
    test_each_leads_and_follows_the_other,
    topic,
)
from tests.support import kafka

pytestmark = pytest.mark.reference_smoke


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothKinds]:
    kafka.jars_or_skip()
    home = tmp_path_factory.mktemp("smoke") / "cluster"
    with kafka.running(home, "KOO") as cluster, closing(BothKinds(cluster, "KOO")) as both:
        yield both
