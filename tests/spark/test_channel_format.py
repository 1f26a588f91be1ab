"""Format `streamkit`: bindings by name, wherever Spark runs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamkit import StreamApplication
from streamkit.spark import published
from tests.spark.stand import BUNDLED, Stand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS = 100
BINDINGS = "spring.cloud.stream.bindings"
ROCKET = "spring.cloud.stream.rocketmq"

FILE_BINDER = '''
from pathlib import Path
from streamkit.binder.binder import Binder, ProducerBinding
from streamkit.binder.delivery import ExtendedConsumerProperties, ExtendedProducerProperties
from streamkit.binder.binder_type import BinderType
from streamkit.plugins import hookimpl


class FileBinder(Binder):
    """Appends each message to a file, as a system would that other processes reach."""
    type = "file"

    def __init__(self, name, context):
        super().__init__(name)
        self.directory = Path(context.environment.text("file.directory"))

    async def start(self):
        (self.directory / "started").touch()

    async def stop(self):
        (self.directory / "started").unlink()

    def capabilities(self):
        return frozenset()

    async def bind_consumer(self, destination, receiver):
        raise NotImplementedError

    async def bind_producer(self, destination):
        return FileProducer(self.directory / destination.name)


class FileProducer(ProducerBinding):
    def __init__(self, path):
        self.file = path.open("a")

    async def send(self, message):
        key = message.headers.get("streamkit_key")
        self.file.write(f"{key} {message.headers.content_type} {message.payload.decode()}\\n")

    async def stop(self):
        self.file.close()


class FileBinderType(BinderType):
    is_default_candidate = False

    def create_binder(self, name, context):
        return FileBinder(name, context)

    def extended_models(self):
        return ExtendedConsumerProperties, ExtendedProducerProperties


@hookimpl
def streamkit_binder_types():
    return {"file": FileBinderType()}
'''


def properties_of(stand: Stand, directory: Path, **bindings: str) -> Path:
    """Return a settings file with these bindings and destinations."""
    lines = [f"{ROCKET}.binder.name-server={stand.name_server}"]
    for name, topic in bindings.items():
        lines += [f"{BINDINGS}.{name}.destination={topic}", f"{BINDINGS}.{name}.group={topic}-readers"]
        lines += [f"{ROCKET}.bindings.{name}.consumer.consume-from-where=CONSUME_FROM_FIRST_OFFSET"]
    path = directory / "channels.properties"
    path.write_text("\n".join(lines))
    return path


def load(spark: "SparkSession", **options: Any) -> "DataFrame":
    """Return the binding as a DataFrame, read once."""
    return spark.read.format("streamkit").options(**options).load()


def copy(spark: "SparkSession", frame: "DataFrame", checkpoint: Path, **options: Any) -> None:
    """Write a stream to a binding, all that is present."""
    writer = frame.writeStream.format("streamkit").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)


def test_binding_is_read_by_its_name(spark: "SparkSession", stand: Stand, tmp_path: Path) -> None:
    """With the same columns for any binder; selected ones, and the format's own options."""
    topic = stand.topic(queues=1)
    stand.send(topic, [b"zero", b"one", b"two"])
    file = str(properties_of(stand, tmp_path, numbers=topic))
    rows = load(spark, channel="numbers", properties=file).orderBy("offset").collect()
    assert [(row["key"], row.tags, row.topic, row.partition, row.offset, bytes(row.body)) for row in rows] == [
        ("k0", "even", topic, 0, 0, b"zero"),
        ("k1", "odd", topic, 0, 1, b"one"),
        ("k2", "even", topic, 0, 2, b"two"),
    ]
    assert rows[1].headers["n"] == "1"
    narrow = spark.read.format("streamkit").schema("body binary, key string")
    narrow = narrow.options(channel="numbers", properties=file, tag="odd")
    assert [(bytes(row.body), row["key"]) for row in narrow.load().collect()] == [(b"one", "k1")]


@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated"])
def test_stream_from_binding_to_binding(spark: "SparkSession", stand: Stand, tmp_path: Path, delivery: str) -> None:
    """Rows are converted by the output's content type, and have keys and headers;

    the checkpoint has the source's offsets.
    """
    if delivery == "deduplicated" and stand.kind != BUNDLED:
        pytest.skip("Apache's broker cannot refuse what it has stored")
    topic, target = stand.topic(queues=2), stand.topic(queues=2)
    file = str(properties_of(stand, tmp_path, numbers=topic, squares=target))
    expected = []
    for round_ in range(2):
        expected += stand.fill(topic, 20, start=20 * round_)
        reader = spark.readStream.format("streamkit").options(channel="numbers", properties=file)
        rows = reader.option("maxOffsetsPerTrigger", "12").load().selectExpr(
            "key", "tags", "map('n', headers['n']) AS headers", "CAST(CAST(body AS string) AS int) AS number"
        )  # fmt: skip
        copy(spark, rows, tmp_path / "checkpoint", channel="squares", properties=file, delivery=delivery)
    messages = stand.messages(target)
    assert sorted(m.body.decode() for m in messages) == sorted(f'{{"number":{n}}}' for n in expected)
    first = next(message for message in messages if message.body == b'{"number":3}')
    assert (first.keys, first.tags, first.properties["contentType"]) == ("k1", "odd", "application/json")
    assert first.properties["n"] == "1"


def test_batch_write_stores_rows_once(spark: "SparkSession", bundled_stand: Stand, tmp_path: Path) -> None:
    """Whole bodies, with an application's settings in code."""
    topic = bundled_stand.topic(queues=1)
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.application.name": "billing",
            f"{ROCKET}.binder.name-server": bundled_stand.name_server,
            f"{BINDINGS}.bills.destination": topic,
            f"{BINDINGS}.bills.content-type": "text/plain",
        },
    )
    frame = spark.sql("SELECT * FROM VALUES ('a', 'one'), ('b', 'two') AS t(key, body)")
    with app, published(app) as name:
        assert name == f"billing@{os.getpid()}"
        for application in ("billing", name):
            writer = frame.write.format("streamkit").mode("append")
            writer.options(application=application, channel="bills").save()
        assert load(spark, application="billing", channel="bills", startingOffsets="earliest").count() == 4
    found = sorted((m.keys, m.body, m.properties["contentType"]) for m in bundled_stand.messages(topic))
    assert found == [("a", b"one", "text/plain")] * 2 + [("b", b"two", "text/plain")] * 2
    with pytest.raises(Exception, match="no running application 'billing' publishes its bindings"):
        load(spark, application="billing", channel="bills")


@pytest.fixture
def file_binder(spark: "SparkSession", tmp_path: Path) -> Iterator[Path]:
    """A binder that Spark's processes find installed, without a format for Spark, and its directory."""
    installed = tmp_path / "file_binder-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: file-binder\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[streamkit.binders]\nfile = file_binder\n")
    (tmp_path / "file_binder.py").write_text(FILE_BINDER)
    spark.sparkContext.addFile(str(installed), recursive=True)
    spark.sparkContext.addFile(str(tmp_path / "file_binder.py"))
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def test_rows_are_sent_by_a_binder_without_a_format(spark: "SparkSession", file_binder: Path, tmp_path: Path) -> None:
    """Each task opens the binding with the frozen settings, and closes it."""
    settings = tmp_path / "channels.properties"
    settings.write_text(
        f"{BINDINGS}.notes.destination=notes.txt\n{BINDINGS}.notes.binder=file\nfile.directory={file_binder}\n"
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"key": "x", "n": [1]}\n{"key": "y", "n": [2, 3]}\n')
    rows = spark.readStream.schema("key string, n array<int>").json(str(tmp_path / "in"))
    copy(spark, rows, tmp_path / "checkpoint", channel="notes", properties=str(settings))
    assert sorted((file_binder / "notes.txt").read_text().splitlines()) == [
        'x application/json {"n":[1]}',
        'y application/json {"n":[2,3]}',
    ]
    assert not (file_binder / "started").exists()
    with pytest.raises(Exception, match=r"cannot be read by format 'streamkit': binder 'file' of type 'file'"):
        load(spark, channel="notes", properties=str(settings)).count()
    with pytest.raises(Exception, match="unknown option 'delivery': binder 'file' has no Python format"):
        copy(spark, rows, tmp_path / "c2", channel="notes", properties=str(settings), delivery="at-least-once")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'channel' is missing: the name of a binding"),
        ({"channel": "number"}, "binding 'number', which does not exist; did you mean 'numbers'"),
        ({"channel": "numbers", "application": "none"}, "no running application 'none' publishes"),
        (
            {"channel": "numbers", "application": "x", "profiles": "y"},
            "'application' and 'profiles' are both given",
        ),
        ({"channel": "numbers", "nameServer": "x:1"}, "'nameserver' is given for binding 'numbers'"),
        ({"channel": "numbers", "maxOffsetPerTrigger": "1"}, "unknown option.*maxOffsetsPerTrigger"),
        ({"channel": "held"}, "whose messages live in the application's process alone"),
        ({"channel": "held", "properties": "nowhere.properties"}, "nowhere.properties"),
    ],
)
def test_option_errors_are_clear(
    spark: "SparkSession", bundled_stand: Stand, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    """With their names when the query is planned."""
    file = properties_of(bundled_stand, tmp_path, numbers="numbers", held="held")
    file.write_text(file.read_text() + f"\n{BINDINGS}.held.binder=inmemory")
    given = options if "application" in options else {"properties": str(file)} | options
    with pytest.raises(Exception, match=f"(?s){message}"):
        load(spark, **given).count()


def test_missing_columns_are_errors(spark: "SparkSession", bundled_stand: Stand, tmp_path: Path) -> None:
    """In reads, and a missing payload in writes."""
    file = str(properties_of(bundled_stand, tmp_path, numbers=bundled_stand.topic()))
    reader = spark.read.format("streamkit").options(channel="numbers", properties=file)
    with pytest.raises(Exception, match="column 'bodies' is not a column of format 'streamkit', which has key, tags"):
        reader.schema("bodies binary").load().count()
    with pytest.raises(Exception, match="column 'body' is asked for as string, it is binary"):
        reader.schema("body string").load().count()
    writer = spark.sql("SELECT 'k' AS key").write.format("streamkit").mode("append")
    with pytest.raises(Exception, match="the rows have no payload: beside key"):
        writer.options(channel="numbers", properties=file).save()
