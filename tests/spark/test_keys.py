"""Keys of an account, and TLS: all requests of driver and executors are signed and encrypted, and nothing that Spark
writes has a secret."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client.blocking import BlockingClient, Credentials, ProducerSettings
from rocket_remoting.wire.message import Message
from tests.certificates import PASSWORD, authority

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ACCESS, SECRET = "access-of-spark", "hush-hush-hush"
ACCOUNTS = f"accounts: [{{accessKey: {ACCESS}, secretKey: {SECRET}, admin: true}}]\n"


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the name server of a broker with topic `orders`, which has one message.

    Both accept only encrypted connections of clients with a certificate, and the broker checks signatures.
    """
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    ours = authority()
    own, tls = ours.server(), ours.client(signed_by=ours)
    encrypted = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(own.certificate),
        "tls.server.keyPath": str(own.key),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(ours.file),
        "tls.client.trustCertPath": str(ours.file),
        "tls.client.certPath": str(tls.certificate),
        "tls.client.keyPath": str(tls.key),
    }
    with ThreadedBroker(settings={"aclEnable": "true", "rocketmqHome": str(home)} | encrypted) as broker:
        keys = Credentials(ACCESS, SECRET)
        settings = ProducerSettings(name_servers=broker.name_server, credentials=keys, tls=tls)
        with BlockingClient("preparing", settings) as client:
            client.send(Message("orders", b"tea"))
        yield broker.name_server


def tls_options() -> dict[str, str]:
    """Return the options of TLS, each by itself."""
    ours = authority()
    tls = ours.client(signed_by=ours)
    return {
        "useTLS": "true",
        "tls.client.trustCertPath": str(ours.file),
        "tls.client.certPath": str(tls.certificate),
        "tls.client.keyPath": str(tls.key),
    }


def tls_file(directory: Path) -> dict[str, str]:
    """Return the options of TLS with a file, which has the password of the client's key."""
    ours = authority()
    certificate, key = ours.issue("spark", "spark.example", password=PASSWORD)
    file = directory / "tls.properties"
    file.write_text(
        f"tls.client.trustCertPath={ours.file}\ntls.client.certPath={certificate}\n"
        f"tls.client.keyPath={key}\ntls.client.keyPassword={PASSWORD}\n"
    )
    return {"useTLS": "true", "tls.config.file": str(file)}


def plan_of(frame: "DataFrame") -> str:
    """Return all plans of a query as Spark prints them."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain(True)
    return printed.getvalue()


def test_secrets_are_in_no_plan_and_no_checkpoint(spark: "SparkSession", name_server: str, tmp_path: Path) -> None:
    """A stream reads and writes with them; without them a broker refuses, and the error has no secret either."""
    checkpoint = tmp_path / "checkpoint"
    keys = {"nameServer": name_server, "accessKey": ACCESS, "secretKey": SECRET}
    options = keys | tls_file(tmp_path)
    batch = spark.read.format("rocketmq").options(**keys, **tls_options(), topic="orders").load()
    assert [bytes(row.body) for row in batch.collect()] == [b"tea"]
    rows = (
        spark.readStream.format("rocketmq")
        .options(**options, topic="orders", startingOffsets="earliest")
        .load()
        .selectExpr("body")
    )
    query = (
        rows.writeStream.format("rocketmq")
        .options(**options, topic="orders", checkpointLocation=str(checkpoint))
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
    shown += [path.read_text(errors="replace") for path in checkpoint.rglob("*") if path.is_file()]
    assert len(shown) > 5
    for text in shown:
        assert not [secret for secret in (SECRET, "wrong-secret", PASSWORD) if secret in text]
    written = spark.read.format("rocketmq").options(**options, topic="orders").load()
    assert [bytes(row.body) for row in written.collect()] == [b"tea", b"tea"]
