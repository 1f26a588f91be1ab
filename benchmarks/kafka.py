"""Apache Kafka for comparison: one broker, and the jars of Spark's connector, from Maven Central."""

import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.brokers import MeasuredBroker
from tests.peer.artifacts import KAFKA_VERSION, cache_directory
from tests.peer.kafka import KafkaServer

SPARK_CONNECTOR = (
    # The newest there are; they run on Spark 4.3 as well.
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>streamkit.benchmarks</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>
"""


def connector_jars() -> list[str]:
    """Spark's Kafka connector, without what Spark has itself."""
    return _class_path("spark-kafka", SPARK_CONNECTOR).split(os.pathsep)


@contextmanager
def kafka_broker() -> Iterator[MeasuredBroker]:
    """One Kafka broker with its data in a temporary directory; topics get four partitions."""
    started = time.perf_counter()
    with KafkaServer(java=("-Xmx768m", "-XX:TieredStopAtLevel=4")) as server:
        elapsed = time.perf_counter() - started
        yield MeasuredBroker(f"Kafka {KAFKA_VERSION}", server.address, server.pid, elapsed)


@functools.cache
def _class_path(name: str, artifacts: tuple[str, ...]) -> str:
    known = cache_directory() / f"class-path-{name}.txt"
    if known.exists() and all(Path(jar).exists() for jar in known.read_text().split(os.pathsep)):
        return known.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        pom, found = Path(scratch) / "pom.xml", Path(scratch) / "class-path"
        pom.write_text(_POM.format(dependencies="".join(_dependency(each) for each in artifacts)))
        command = ["mvn", "-q", "-B", "-f", str(pom), "-DincludeScope=runtime", f"-Dmdep.outputFile={found}"]
        subprocess.run([*command, "dependency:build-classpath"], check=True)
        known.write_text(found.read_text().strip())
    return known.read_text()


def _dependency(artifact: str) -> str:
    group, name, version = artifact.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
    )
