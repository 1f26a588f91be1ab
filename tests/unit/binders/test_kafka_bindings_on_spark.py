"""What Spark supports for bindings on Kafka, checked before anything is read or sent."""

import pytest

pytest.importorskip("pyspark")

from pathlib import Path

import streamkit.spark
from pyspark_streamkit.source import StreamkitDataSource
from pyspark_streamkit.writing import BindingStreamWriter
from streamkit import StreamApplication
from streamkit.errors import ConfigurationError

SETTINGS = {
    "spring.cloud.stream.default-binder": "kafka",
    "spring.cloud.stream.kafka.binder.brokers": "127.0.0.1:9",
    "spring.cloud.stream.bindings.orders.destination": "orders-v2",
}


def test_input_is_refused() -> None:
    """Spark's own format for Kafka has other columns and should be used."""
    app = StreamApplication(config_location="optional:/none", properties=SETTINGS)
    with pytest.raises(
        ConfigurationError, match=r"'kafka' has no Spark format.*read 'orders-v2' with Spark's own format"
    ):
        streamkit.spark.source(app, "orders")


def test_format_streamkit_writes_but_does_not_read(tmp_path: Path) -> None:
    """Executors open the binding to send; options of the `rocketmq` format are refused."""
    file = tmp_path / "application.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    options = {"channel": "orders", "properties": str(file)}
    found = StreamkitDataSource(options)
    assert isinstance(found.streamWriter(found.schema(), overwrite=False), BindingStreamWriter)
    with pytest.raises(ConfigurationError, match="no Python format for Spark: read its destination"):
        found.streamReader(found.schema())
    with pytest.raises(ConfigurationError, match="unknown option 'delivery': binder 'kafka'"):
        StreamkitDataSource(options | {"delivery": "deduplicated"}).streamWriter(found.schema(), overwrite=False)
