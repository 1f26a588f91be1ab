"""Apache Kafka to measure beside: one broker, and the jars of Spark's connector, from Maven Central."""

import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.brokers import MeasuredBroker
from tests.peer.apache import free_ports
from tests.peer.artifacts import cache_directory

KAFKA = ("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
SPARK_CONNECTOR = (
    # The newest there are; they run on Spark 4.3 as well.
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)
BOOT_SECONDS = 180.0

_CONFIG = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=4
log.dirs={home}/data
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>streamkit.benchmarks</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>
"""
_ONLY_ITSELF = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def connector_jars() -> list[str]:
    """Spark's Kafka connector, without what Spark has itself."""
    return _class_path("spark-kafka", SPARK_CONNECTOR, transitive=False).split(os.pathsep)


@contextmanager
def kafka_broker() -> Iterator[MeasuredBroker]:
    """One Kafka broker with its data in a temporary directory; topics get four partitions."""
    class_path = _class_path("kafka", KAFKA, transitive=True)
    home = Path(tempfile.mkdtemp(prefix="streamkit-bench-kafka-"))
    port, controller = free_ports()
    config = home / "server.properties"
    config.write_text(_CONFIG.format(port=port, controller=controller, home=home))
    java = ["java", "-Xmx768m", "-cp", class_path]
    identity = subprocess.run(
        [*java, "kafka.tools.StorageTool", "random-uuid"], capture_output=True, text=True, check=True
    )
    cluster = identity.stdout.strip().splitlines()[-1]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)],
        capture_output=True,
        check=True,
    )
    started = time.perf_counter()
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        _await_port(process, port)
        yield MeasuredBroker("Kafka 4.3.1", f"127.0.0.1:{port}", process.pid, time.perf_counter() - started)
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(home, ignore_errors=True)


def _await_port(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    raise RuntimeError("Kafka did not start")


@functools.cache
def _class_path(name: str, artifacts: tuple[str, ...], *, transitive: bool) -> str:
    known = cache_directory() / f"class-path-{name}.txt"
    if known.exists() and all(Path(jar).exists() for jar in known.read_text().split(os.pathsep)):
        return known.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        pom, found = Path(scratch) / "pom.xml", Path(scratch) / "class-path"
        pom.write_text(_POM.format(dependencies="".join(_dependency(each, transitive) for each in artifacts)))
        command = ["mvn", "-q", "-B", "-f", str(pom), "-DincludeScope=runtime", f"-Dmdep.outputFile={found}"]
        subprocess.run([*command, "dependency:build-classpath"], check=True)
        known.write_text(found.read_text().strip())
    return known.read_text()


def _dependency(artifact: str, transitive: bool) -> str:
    group, name, version = artifact.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{'' if transitive else _ONLY_ITSELF}</dependency>"
    )
