"""Spark Connect: the driver is a server, this program its client."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.broker_process import ROOT
from tests.spark.java import SHORT_LIVED
from tests.spark.stand import Stand

CONNECTED = """
import sys
from pyspark.sql import SparkSession
from streamkit import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.spark import bind, java_home
import os

name_server, source, target, directory = sys.argv[1:]
home = java_home()
if home is not None:
    os.environ["JAVA_HOME"] = str(home)
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.remote("local[2]").config("spark.driver.memory", "512m").getOrCreate()
options = {"nameServer": name_server, "topic": source, "startingOffsets": "earliest"}
print("rows", spark.read.format("rocketmq").options(**options).load().count())
settings = f"{directory}/channels.properties"
rows = spark.readStream.format("rocketmq").options(**options).load().selectExpr("body", "keys AS key")
writer = rows.writeStream.format("streamkit").options(channel="out", properties=settings)
query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
assert query.awaitTermination(240)
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
    print("refused", error)
spark.stop()
"""


@pytest.mark.timeout(400)
def test_spark_connect(bundled_stand: Stand, tmp_path: Path) -> None:
    """Formats are found and work; sends from the client's process are refused."""
    pytest.importorskip("grpc")
    source, target = bundled_stand.topic(), bundled_stand.topic()
    bodies = bundled_stand.fill(source, 40)
    (tmp_path / "channels.properties").write_text(
        f"spring.cloud.stream.rocketmq.binder.name-server={bundled_stand.name_server}\n"
        f"spring.cloud.stream.bindings.out.destination={target}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED, bundled_stand.name_server, source, target, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": SHORT_LIVED},
        check=False,
        timeout=380,
    )
    assert "rows 40" in done.stdout, done.stdout + done.stderr[-4000:]
    assert "refused the rows for binding 'out' are of a Spark Connect session" in done.stdout, done.stdout
    assert bundled_stand.bodies(target) == sorted(bodies)
