"""What the partitions route tells of replicas and strays."""

import asyncio
import json

from logyard.broker.leases.replica_status import BETWEEN_PAUSES
from logyard.broker.log import layout
from logyard.broker.model import TopicPartition
from tests.support.lease_world import COMPACTED, DIRECTORY, ROOT, TP, LeaseWorld, fill


class TestStatuses:
    async def test_one_partition(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            await world.store.checkpoints.write_everywhere(layout.HIGH_WATERMARKS)
            status = await world.ok("GET", "/partitions/t/0")
            assert (status["topic"], status["partition"], status["directory"]) == ("t", 0, DIRECTORY)
            assert (status["is_leader"], status["leader"], status["leader_epoch"]) == (True, 1, 0)
            assert (status["log_end_offset"], status["size"]) == (180, log.size)
            assert status["segments"][-1] == {
                "base_offset": log.segments.active.base_offset,
                "size": log.segments.active.size,
                "active": True,
            }
            assert status["checkpoints"] == {
                "replication-offset-checkpoint": 180,
                "recovery-point-offset-checkpoint": None,
                "log-start-offset-checkpoint": None,
                "cleaner-offset-checkpoint": None,
            }
            assert await world.refusal("GET", "/partitions/t/1") == (404, "unknown_partition")

    async def test_a_replica_that_moves_is_not_compacted_and_its_copy_is_no_stray(self) -> None:
        async with LeaseWorld(None, ROOT, COMPACTED, "/other") as world:
            world.store.logs.get_or_create(TP, None, COMPACTED, True, ROOT)
            fill(world.lead(), 20)
            world.store.logs.begin_move(TP, "/other")
            body = {"topic": TP.topic, "partition": TP.partition, "run_id": "r", "purpose": "compact"}
            assert await world.refusal("POST", "/leases", body) == (409, "moving")
            await world.ok("POST", "/leases", body | {"purpose": "audit"})
            assert (await world.ok("GET", "/partitions"))["strays"] == []
            world.store.logs.begin_move(TP, ROOT)
            await world.ok("POST", "/leases", body)

    async def test_all_partitions_and_strays(self) -> None:
        async with LeaseWorld() as world:
            world.lead()
            world.lead(TopicPartition("u", 3))
            world.disk.make_directory(f"{ROOT}/odd-name")
            world.disk.make_directory(f"{ROOT}/x-0.{'a' * 32}-stray")
            world.disk.make_directory(f"{ROOT}/x-0.{'a' * 32}-delete")
            world.store.logs.get_or_create(TopicPartition("orphan", 0), None, COMPACTED, True)
            answer = await world.ok("GET", "/partitions")
            assert [(p["topic"], p["partition"]) for p in answer["partitions"]] == [("t", 0), ("u", 3)]
            assert answer["log_dirs"] == [{"path": ROOT, "online": True}]
            assert (answer["broker_id"], answer["cluster_id"]) == (1, "cluster")
            names = [path.rpartition("/")[2] for path in answer["strays"]]
            assert names == ["odd-name", "orphan-0", f"x-0.{'a' * 32}-stray"]

    async def test_many_are_asked_about_in_turns_and_encoded_in_a_thread(self) -> None:
        """Anyone who logs in may ask: 100,000 replicas held the event loop for half a second, whoever saw none too."""
        async with LeaseWorld() as world:
            tps = [TopicPartition("tu"[n % 2], n) for n in range(3 * BETWEEN_PAUSES)]
            for tp in tps:
                world.lead(tp)
            asked = [0]
            encodings = []

            def sees(topic: str) -> bool:
                asked[-1] += 1
                return topic == "u"

            async def count_turns() -> None:
                while True:
                    asked.append(0)
                    await asyncio.sleep(0)

            world.before_work = lambda: encodings.append(True)
            turns = asyncio.create_task(count_turns())
            pieces = await world.lease_service.partitions_json(sees, sees_cluster=False)
            turns.cancel()
            told = json.loads(b"".join(pieces))
            assert [row["partition"] for row in told["partitions"]] == [tp.partition for tp in tps if tp.topic == "u"]
            assert (told["log_dirs"], told["strays"]) == ([], [])
            assert (sum(asked), max(asked)) == (len(tps), BETWEEN_PAUSES)
            assert len(encodings) == 2, "the directories are listed in a thread, the answer is encoded in one"
