"""The keys of an account: all requests of driver and executors are signed, and nothing that Spark writes has them."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client.blocking import BlockingClient, Credentials, ProducerSettings
from rocket_remoting.wire.message import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ACCESS, SECRET = "access-of-spark", "hush-hush-hush"
ACCOUNTS = f"accounts: [{{accessKey: {ACCESS}, secretKey: {SECRET}, admin: true}}]\n"


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the name server of a broker with access control, which has topic `orders` with one message."""
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    with ThreadedBroker(settings={"aclEnable": "true", "rocketmqHome": str(home)}) as broker:
        settings = ProducerSettings(name_servers=broker.name_server, credentials=Credentials(ACCESS, SECRET))
        with BlockingClient("preparing", settings) as client:
            client.send(Message("orders", b"tea"))
        yield broker.name_server


def plan_of(frame: "DataFrame") -> str:
    """Return all plans of a query as Spark prints them."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain(True)
    return printed.getvalue()


def test_keys_are_in_no_plan_and_no_checkpoint(spark: "SparkSession", name_server: str, tmp_path: Path) -> None:
    """A stream reads and writes with them; without them a broker refuses, and the error has no key either."""
    options = {"nameServer": name_server, "accessKey": ACCESS, "secretKey": SECRET}
    batch = spark.read.format("rocketmq").options(**options, topic="orders").load()
    assert [bytes(row.body) for row in batch.collect()] == [b"tea"]
    rows = (
        spark.readStream.format("rocketmq")
        .options(**options, topic="orders", startingOffsets="earliest")
        .load()
        .selectExpr("body")
    )
    query = (
        rows.writeStream.format("rocketmq")
        .options(**options, topic="orders", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    shown = [plan_of(batch), plan_of(rows), str(query.lastProgress), str(query._jsq.explainInternal(True))]
    forged = options | {"secretKey": "wrong-secret", "fetchOffset.numRetries": "0", "pullTimeoutMs": "100"}
    wrong = spark.read.format("rocketmq").options(**forged, topic="orders").load()
    with pytest.raises(Exception, match="Check signature failed") as caught:
        wrong.collect()
    shown.append(str(caught.value))
    shown += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(shown) > 5
    for text in shown:
        assert SECRET not in text
        assert "wrong-secret" not in text
