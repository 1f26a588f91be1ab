"""Spark Connect: the driver is a server whose executors are on a standalone cluster, and this program its client."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from samples.pipeline.cluster import HOST, Machine, SparkCluster, settings, spark_home
from streamkit.spark import JavaNotFoundError, java_home
from tests.end_to_end.broker_process import ROOT
from tests.ports import free_ports
from tests.spark.java import SHORT_LIVED
from tests.spark.stand import Stand

SECONDS = 600.0
POLL_SECONDS = 0.1
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

CLIENT = """
import sys
from pyspark.sql import SparkSession
from streamkit import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.spark import bind

url, name_server, source, copied, directory = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
options = {"nameServer": name_server}
read = spark.read.format("rocketmq").options(**options, topic=source).load()
writer = read.selectExpr("concat('seen-', CAST(body AS STRING)) AS body", "keys").write.format("rocketmq")
writer.options(**options, topic=copied, delivery="deduplicated", writeId="copied").mode("append").save()

settings = f"{directory}/channels.properties"
rows = spark.readStream.format("streamkit").options(channel="in", properties=settings).load()
writer = rows.selectExpr("key", "CAST(body AS STRING) AS text").writeStream.format("streamkit")
writer = writer.options(channel="out", properties=settings, delivery="deduplicated")
query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
assert query.exception() is None, query.exception()

app = StreamApplication(
    config_location="optional:/none",
    properties={
        "spring.cloud.stream.default-binder": "inmemory",
        "spring.cloud.stream.bindings.out.destination": "out",
    },
)
bind(app, rows, "out")
try:
    with app:
        pass
except ConfigurationError as error:
    print("refused:", error)
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A master and a worker with one core."""
    pytest.importorskip("grpc")
    try:
        java_home()
    except JavaNotFoundError as error:
        if os.environ.get("STREAMKIT_REQUIRE_PEERS"):
            raise
        pytest.skip(str(error))
    made = SparkCluster(tmp_path / "cluster", workers=[Machine()])
    try:
        asyncio.run(made.start())
        yield made
    finally:
        made.stop()


@pytest.fixture
def server(cluster: SparkCluster, tmp_path: Path) -> Iterator[str]:
    """Return the address of a Spark Connect server, the driver of the cluster's executors, started as docs/spark.md
    says."""
    port = free_ports()[0]
    configuration = {
        **settings(HOST),
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
    }
    pairs = [argument for key, value in configuration.items() for argument in ("--conf", f"{key}={value}")]
    home = java_home()
    environment = {
        **os.environ,
        **cluster.session_environment(),
        **({} if home is None else {"JAVA_HOME": str(home)}),
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(tmp_path),  # not the settings of another server
        "PYTHONPATH": str(ROOT),
    }
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.url, "--class", SERVER, *pairs],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _await_port(process, port, log)
        yield f"sc://{HOST}:{port}"
    finally:
        process.kill()  # the script has become the server
        process.wait()


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection((HOST, port)).close()
        except ConnectionRefusedError:
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(POLL_SECONDS)
        else:
            return


@pytest.mark.timeout(1500)
def test_formats_on_executors_of_a_connect_server(
    bundled_stand: Stand, cluster: SparkCluster, server: str, tmp_path: Path
) -> None:
    """A batch by format `rocketmq` and a stream by format `streamkit` are read and written there; an application's
    binding refuses the rows, because the application does not have them."""
    source, copied, target = (bundled_stand.topic() for _ in range(3))
    bodies = bundled_stand.fill(source, 40)
    (tmp_path / "channels.properties").write_text(
        f"spring.cloud.stream.rocketmq.binder.name-server={bundled_stand.name_server}\n"
        "spring.cloud.stream.rocketmq.default.consumer.consume-from-where=CONSUME_FROM_FIRST_OFFSET\n"
        f"spring.cloud.stream.bindings.in.destination={copied}\n"
        "spring.cloud.stream.bindings.in.group=in\n"
        f"spring.cloud.stream.bindings.out.destination={target}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, server, bundled_stand.name_server, source, copied, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
        timeout=SECONDS,
    )
    said = done.stdout + done.stderr[-4000:]
    assert "refused: the rows for binding 'out' are of a Spark Connect session" in done.stdout, said
    seen = [f"seen-{body}" for body in bodies]
    assert bundled_stand.bodies(copied) == sorted(seen)
    assert bundled_stand.bodies(target) == sorted(f'{{"text":"{text}"}}' for text in seen)
    assert list((tmp_path / "cluster").glob("worker-*/work/app-*/*/stderr")), "no executor ran on the cluster"
