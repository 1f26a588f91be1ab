"""Options are validated once, at the start."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark_rocketmq.errors import OffsetError, OptionError, RocketMQError
from pyspark_rocketmq.options import (
    DEFAULT_GROUP,
    Delivery,
    sink_options,
    source_options,
    stream_options,
    stream_sink_options,
)
from pyspark_rocketmq.partitions import Plan
from pyspark_rocketmq.starting import Position, Strategy
from rocket_client.blocking import Credentials
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.errors import TlsError

READ = {"nameServer": "a:1;b:2", "topic": "t"}


def test_defaults_equal_those_of_sparks_kafka_source() -> None:
    """Where it has the option."""
    options = source_options(READ)
    assert (options.topics, options.starting, options.ending) == (("t",), None, Position("latest"))
    assert (options.fail_on_data_loss, options.max_offsets, options.max_delay) == (True, None, 900.0)
    assert (options.plan, options.commit_offsets) == (Plan(0, 0, 20_000), False)
    assert (options.cluster.group, options.expression, options.patience) == (DEFAULT_GROUP, "*", 120.0)
    sink = sink_options(READ)
    assert (sink.delivery, sink.batch_size, sink.max_message_size) == (Delivery.AT_LEAST_ONCE, 1024, 4 << 20)


def test_names_have_aliases() -> None:
    """Apache's old connector's, in any case, and with its prefix."""
    options = source_options(
        {"rocketmq.NAMESERVER": "a:1", "subscribe": "t2, t1", "group": "g", "subExpression": "x || y"}
    )
    assert (options.topics, options.cluster.group, options.commit_offsets) == (("t1", "t2"), "g", True)
    assert (options.expression, options.expression_type) == ("x || y", "TAG")


def test_options_that_spark_adds_are_ignored() -> None:
    """Such as the checkpoint's path."""
    assert sink_options(READ | {"checkpointLocation": "/tmp/x", "queryName": "q"}).topic == "t"


@pytest.mark.parametrize(
    ("more", "position"),
    [
        ({"startingOffsets": "Earliest"}, Position("earliest", option="startingOffsets")),
        (
            {"startingOffsets": '{"t":{"a":{"0":3,"1":-2}}}'},
            Position("offsets", option="startingOffsets", numbers={"t": {"a": {0: 3, 1: -2}}}),
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"},
            Position("timestamp", option="startingTimestamp", timestamp=5, strategy=Strategy.LATEST),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"a":{"0":3}}}'},
            Position("timestamps", option="startingOffsetsByTimestamp", numbers={"t": {"a": {0: 3}}}),
        ),
    ],
)
def test_starting_offsets(more: dict[str, str], position: Position) -> None:
    """Words, offsets, one time or several."""
    assert source_options(READ | more).starting == position


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t"}, "option 'nameServer' is missing"),
        ({"nameServer": "a:1"}, "no option names the topics to read"),
        (READ | {"nameServer": "somewhere"}, "'somewhere' is not host:port"),
        (READ | {"subscribe": "x"}, "subscribe and topic are both given"),
        (READ | {"tag": "a", "sql": "b = 1"}, "tag and sql are both given"),
        (READ | {"subscribepattern": "("}, "topic and subscribePattern are both given"),
        ({"nameServer": "a:1", "subscribePattern": "("}, "not a regular expression"),
        (READ | {"rocketmq.topic": "t"}, "option 'topic' is given twice: as 'topic' and as 'rocketmq.topic'"),
        (READ | {"maxTriggerDelay": "soon"}, "write a duration such as 30s"),
        (READ | {"consumerGroup": " "}, "option 'consumerGroup' is empty"),
        (READ | {"commitOffsets": "true"}, "'consumerGroup' is required with commitOffsets=true"),
        (
            READ | {"startingOffsets": "committed"},
            "'consumerGroup' is required with startingOffsets=committed",
        ),
        (
            READ | {"startingOffsets": "committed", "groupIdPrefix": "p"},
            "'consumerGroup' is required with startingOffsets=committed",
        ),
        (
            READ | {"consumerGroup": "g", "groupIdPrefix": "p"},
            "consumerGroup and groupIdPrefix are both given",
        ),
        (READ | {"failOnDataLoss": "maybe"}, "write true or false"),
        (READ | {"maxOffsetsPerTrigger": "0"}, "whole number, at least 1"),
        (READ | {"startingOffsets": "now"}, "option 'startingOffsets' is 'now': write committed, earliest, latest"),
        (READ | {"startingTimestamp": "today"}, "write milliseconds since 1970"),
        (READ | {"batchSize": "1"}, "unknown option 'batchSize' to read"),
        (READ | {"kafka.group.id": "g"}, "it is 'consumerGroup' here"),
        (READ | {"kafka.bootstrap.servers": "x:1"}, "it is 'nameServer' here"),
        (READ | {"tls.config.file": "f"}, "tls.config.file is given without useTLS=true"),
        (READ | {"useTLS": "true", "tls.config.file": "f", "tls.client.certPath": "c"}, "are both given"),
        (READ | {"useTLS": "true", "tls.client.keyPath": "k"}, "'tls.client.certPath' is required"),
        (READ | {"useTLS": "true", "tls.client.authServer": "maybe"}, "write true or false"),
        (READ | {"useTLS": "true", "tls.client.keyPassword": "p"}, "unknown option 'tls.client.keyPassword'"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], message: str) -> None:
    """With what to write instead."""
    with pytest.raises(OptionError, match=re.escape(message)):
        source_options(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delivery": "exactly"}, "write one of 'at-least-once', 'deduplicated'"),
        ({"batchsice": "1"}, "unknown option 'batchsice' to write format 'rocketmq'; did you mean 'batchSize'"),
    ],
)
def test_wrong_options_of_a_sink_are_named(given: dict[str, str], message: str) -> None:
    """With what to write instead."""
    with pytest.raises(OptionError, match=re.escape(message)):
        sink_options(READ | given)


@pytest.mark.parametrize(
    "value",
    ["{", "{}", "5", "[1]", '{"t":1}', '{"t":{"a":[0]}}', '{"t":{"a":{"x":1}}}', '{"t":{"a":{"0":-3}}}'],
)
def test_malformed_offsets_are_refused(value: str) -> None:
    """The error shows an example."""
    with pytest.raises(RocketMQError, match="option 'startingOffsets'"):
        source_options(READ | {"startingOffsets": value})


def test_assigned_queues() -> None:
    """Queue numbers by topic and broker."""
    assigned = source_options({"nameServer": "a:1", "assign": '{"t":{"a":[1,0]}}'}).assigned
    assert assigned == {"t": {"a": (0, 1)}}
    with pytest.raises(OffsetError, match="write JSON as"):
        source_options({"nameServer": "a:1", "assign": '{"t":{"a":{"0":1}}}'})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_stream_refuses_ending_options(name: str) -> None:
    """As Kafka's source; otherwise the option would be silently ignored."""
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"t":{"a":{"0":3}}}')
    assert source_options(READ | {name: value}).ending.option == name
    with pytest.raises(OptionError, match=f"'{name}' is for batches"):
        stream_options(READ | {name: value})


def test_stream_is_identified_by_its_checkpoint() -> None:
    """With an id of its own, a restarted stream's first batches would be taken for duplicates."""
    assert sink_options(READ | {"writeId": "w"}).write_id == "w"
    with pytest.raises(OptionError, match="'writeId' is for batch writes"):
        stream_sink_options(READ | {"writeId": "w", "delivery": "deduplicated"})


def test_tls_is_read_where_the_options_are_used(tmp_path: Path) -> None:
    """From options, or from a file of the machine, which may have a password."""
    assert source_options(READ).cluster.client_tls() is None
    given = {"useTLS": "true", "tls.client.trustCertPath": "ca.pem", "tls.client.authServer": "false"}
    expected = ClientTls(trust_certificates=Path("ca.pem"), verify=False)
    assert source_options(READ | given).cluster.client_tls() == expected
    file = tmp_path / "tls.properties"
    chosen = source_options(READ | {"useTLS": "true", "tls.config.file": str(file)}).cluster
    with pytest.raises(TlsError, match="cannot be read"):
        chosen.client_tls()
    file.write_text("tls.client.certPath=c\ntls.client.keyPassword=p\n")
    assert chosen.client_tls() == ClientTls(certificate=Path("c"), key_password="p")


def test_keys_sign_the_requests_of_a_cluster() -> None:
    """Both or none; neither the options' repr nor an error has a secret."""
    keys = {"accessKey": "shop", "secretKey": "hush-hush"}
    for cluster in (source_options(READ | keys).cluster, sink_options(READ | keys).cluster):
        assert cluster.credentials == Credentials("shop", "hush-hush")
        assert "hush" not in repr(cluster)
    assert source_options(READ).cluster.credentials is None
    for given, missing in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
        with pytest.raises(OptionError, match=f"option '{missing}' is missing") as caught:
            source_options(READ | {given: keys[given]})
        assert "hush" not in str(caught.value)
