"""The same steps with Kafka's tools on a cluster of ours and on one of Kafka's, and their outputs made comparable."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support import kafka
from tests.support.real_cluster import RealCluster

# A refusal's kind is the contract; its words are ours where they say more (which value, what is allowed).
REFUSAL = (r"(Exception): .*", r"\1")

# What differs from run to run on one and the same cluster, in this order.
MASKS: tuple[tuple[str, str], ...] = (
    (r"\b127\.0\.0\.1:\d+\b", "HOST:PORT"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"(TopicId: |ClusterId: |topic_id: |TopicId=)[A-Za-z0-9_-]{22}", r"\1ID"),
    (r"^\[.*\] (WARN|ERROR)", r"\1"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[:,.]\d+", "TIME"),
    (r"(Timestamp|timestamp|Time|CreateTime|LogAppendTime)(\"?[:=] ?)\d{13}", r"\1\2MS"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command line of one of Kafka's tools. `given` is its input; a `quiet` step's output is not compared.

    `figures`: numbers are measurements, only the words count. `refused`: of an exception only its class counts.

    In `arguments`, {bootstrap} is the cluster's address and {dir} a folder of the cluster's own.
    """

    tool: str
    arguments: str
    given: str = ""
    quiet: bool = False
    ordered: bool = True
    figures: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two clusters."""

    name: str
    cluster: RealCluster
    folder: Path

    def run(self, step: Step) -> str:
        words = step.arguments.format(bootstrap=self.cluster.bootstrap, dir=self.folder).split()
        said = kafka.tool(step.tool, *words, given=step.given, check=not step.refused)
        return self.masked(said, step)

    def masked(self, text: str, step: Step) -> str:
        text = text.replace(str(self.cluster.directory), "CLUSTER").replace(str(self.folder), "DIR")
        masks = [*MASKS, *([REFUSAL] if step.refused else []), *([(r"\d+(\.\d+)?", "N")] if step.figures else [])]
        for pattern, shown in masks:
            text = re.sub(pattern, shown, text, flags=re.MULTILINE)
        lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
        lines = [line for line in lines if line]
        return "\n".join(lines if step.ordered else sorted(lines))


def both(sides: Sequence[Side], steps: Sequence[Step]) -> list[str]:
    """Run the steps in order, on both sides at a time; the differences found, [] for none."""
    found = []
    with ThreadPoolExecutor(len(sides)) as pool:
        for step in steps:
            ours, theirs = pool.map(lambda side, step=step: side.run(step), sides)
            if not step.quiet and ours != theirs:
                found.append(f"{step.tool} {step.arguments}\n--- ours\n{ours}\n--- Kafka's\n{theirs}")
    return found
