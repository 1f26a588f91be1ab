"""Sessions: what `low_latency` keeps and excludes, and the Python they start."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.datasource import DataSource

from streamkit.errors import ConfigurationError
from streamkit.spark import session
from streamkit.spark.python import wrapped
from streamkit.spark.session import running_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORE = "spark.sql.streaming.stateStore.providerClass"


def test_low_latency_keeps_state(spark: "SparkSession", tmp_path: Path) -> None:
    """A counting query continues from its checkpoint, which has no checksums."""
    (tmp_path / "in").mkdir()
    counted = spark.readStream.schema("k string").json(str(tmp_path / "in")).groupBy("k").count()
    found: dict[str, int] = {}

    def note(batch: "DataFrame", epoch: int) -> None:
        found.update({row["k"]: row["count"] for row in batch.collect()})

    writer = counted.writeStream.outputMode("update").foreachBatch(note).trigger(availableNow=True)
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text('{"k": "a"}\n{"k": "b"}\n{"k": "a"}\n')
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(100)
    assert found == {"a": 4, "b": 2}
    assert not list((tmp_path / "checkpoint").rglob("*.crc"))


def test_running_session_keeps_its_settings(spark: "SparkSession") -> None:
    """Applications start queries in threads of their own, which use it unchanged."""
    settings = dict(spark.conf.getAll)
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(running_session("app")))
    thread.start()
    thread.join()
    assert found == [spark]
    assert dict(spark.conf.getAll) == settings


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")
def test_python_processes_use_the_installed_pyspark(spark: "SparkSession") -> None:
    """Tasks and planners; from Spark's zip file, without bytecode, they would start slowly."""

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    class Where(DataSource):
        def schema(self) -> str:
            return f"`{pyspark.__file__}` int"

    files = {row["file"] for row in spark.range(1).mapInArrow(where, "file string").collect()}
    spark.dataSource.register(Where)
    assert files == {pyspark.__file__} == set(spark.read.format("Where").load().columns)


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")
def test_other_path_entries_stay(tmp_path: Path) -> None:
    """Only Spark's zip files are removed; arguments are passed unchanged."""
    program = wrapped(sys.executable, tmp_path / "a cache")
    path = "/opt/pyspark/python/lib/pyspark.zip:/a b:/opt/pyspark/python/lib/py4j-0.10-src.zip:/x/*.zip"
    reported = subprocess.run(
        [program, "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "one two", "*"],
        env={"PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert reported.stdout == "/a b:/x/*.zip ['one two', '*']\n"


def test_rocksdb_store_needs_another_session() -> None:
    """An error before Spark starts: with `low_latency` its first commit would fail."""
    settings = {STORE: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
    with pytest.raises(ConfigurationError, match=r"low_latency=True and .*RocksDBStateStoreProvider exclude"):
        session("never", low_latency=True, settings=settings)


def test_python_of_executors_must_be_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error before Spark starts: it plans queries with this program on the driver's machine."""
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    with pytest.raises(ConfigurationError, match=r"PYSPARK_PYTHON is ./environment/bin/python, which .* does not have"):
        session("never", master="spark://127.0.0.1:1")
