"""JSON bodies, in standard form and in fastjson's."""

import zlib

import pytest

from rocket_remoting.wire import fastjson
from rocket_remoting.wire.bodies import (
    BrokerData,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    ConsumeType,
    DataVersion,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    MessageModel,
    ProducerData,
    QueueData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
    decode_body,
    encode_body,
    encode_register_broker_body,
)
from rocket_remoting.wire.bodies.registration import read_registration
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageQueue

ROUTE = TopicRouteData(
    queue_datas=[QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6)],
    broker_datas=[BrokerData(cluster="c", broker_name="b", broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})],
)
REGISTRATION = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        topic_config_table={
            "a": TopicConfig(topic_name="a", read_queue_nums=8, perm=4),
            "b": TopicConfig(topic_name="b", attributes={"message.type": "FIFO", "x": "y z"}),
        },
        data_version=DataVersion(timestamp=5, counter=7),
    ),
    filter_server_list=["10.0.0.1:1"],
)


def test_broker_ids_are_bare_unless_standard_json_is_requested() -> None:
    """Old clients get keys as numbers without quotes."""
    assert b'"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in encode_body(ROUTE)
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"' in encode_body(ROUTE, standard_json=True)


@pytest.mark.parametrize("standard", [False, True])
def test_route_round_trip_in_both_forms(standard: bool) -> None:
    """A route can be read in either form."""
    assert decode_body(memoryview(encode_body(ROUTE, standard_json=standard)), TopicRouteData) == ROUTE


def test_queues_are_keys_of_tables() -> None:
    """In the form that fastjson writes."""
    table = TopicStatsTable(offset_table={MessageQueue("t", "b", 1): TopicOffset(max_offset=3)})
    text = encode_body(table)
    assert text.startswith(b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":1}:{')
    assert decode_body(text, TopicStatsTable) == table


def test_apaches_offset_file_is_read() -> None:
    """Offsets by topic, group and queue."""
    text = b'{\n\t"offsetTable":{"t@g":{0:5,1:7\n\t\t}\n\t}\n}'
    assert decode_body(text, ConsumerOffsetSerializeWrapper).offset_table == {"t@g": {0: 5, 1: 7}}


def test_javas_heartbeat_is_read() -> None:
    """With every group and subscription."""
    heartbeat = HeartbeatData(
        client_id="10.0.0.1@1",
        producer_data_set=[ProducerData(group_name="p")],
        consumer_data_set=[
            ConsumerData(
                group_name="g",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=[
                    SubscriptionData(
                        topic="t", sub_string="a || b", tags_set={"a", "b"}, code_set={97, 98}, sub_version=5
                    )
                ],
            )
        ],
    )
    text = encode_body(heartbeat)
    assert b'"clientID":"10.0.0.1@1"' in text
    assert decode_body(text, HeartbeatData) == heartbeat


def test_quoted_numbers_and_nulls_are_accepted() -> None:
    """As fastjson does: quoted numbers, and null for optional values."""
    text = b"""{"consumerGroup": "g", "clientId": "c", "onlyThisBroker": null,
        "mqSet": [{"topic": "t", "brokerName": "b", "queueId": "1"}]}"""
    body = decode_body(text, LockBatchRequestBody)
    assert body.mq_set == {MessageQueue("t", "b", 1)}


@pytest.mark.parametrize("compressed", [False, True])
def test_registration_round_trip(compressed: bool) -> None:
    """In both forms."""
    text = encode_register_broker_body(REGISTRATION, compressed=compressed)
    wrapper = REGISTRATION.topic_config_serialize_wrapper
    reported = [item for item in read_registration(text, compressed=compressed) if item is not None]
    assert sorted(reported, key=repr) == sorted([wrapper.data_version, *wrapper.topic_config_table.values()], key=repr)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(b"\x00\x00\x00\x02{}\x7f\xff\xff\xff"),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03a b"),
        encode_register_broker_body(REGISTRATION, compressed=True)[:-10],
    ],
)
def test_malformed_registrations_are_refused(data: bytes) -> None:
    """A compressed registration that cannot be read is the sender's error."""
    with pytest.raises(RemoteProtocolError, match="compressed RegisterBrokerBody"):
        list(read_registration(data, compressed=True))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"}",
        b"[",
        b"{1}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1 "b":2}',
        b"[1 2]",
        b"{}{}",
        b"{null:1}",
        b"{true:1}",
        b"{{}:1}",
        b'{"a":"\xff"}',
        b'{"a":"unclosed',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"{" * 100_000,
    ],
)
def test_malformed_json_is_refused(text: bytes) -> None:
    """A body that fastjson would not read is the sender's error, however deeply it is nested."""
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        fastjson.loads(text)
    with pytest.raises(RemoteProtocolError):
        decode_body(text, GetConsumerListByGroupResponseBody)


def test_missing_field_is_named() -> None:
    """A body without a required field is refused with its name."""
    with pytest.raises(RemoteProtocolError, match=r"KVTable: .*`table`"):
        decode_body(b"{}", KVTable)


def test_data_version_increases() -> None:
    """Each change increases the counter and sets the time."""
    assert DataVersion(timestamp=5, counter=7).next(9) == DataVersion(timestamp=9, counter=8)


def test_constants_may_be_numbers() -> None:
    """Apache's C++ client writes ordinals of Java's enums."""
    data = (
        b'{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g",'
        b'"messageModel":0,"subscriptionDataSet":[{"subString":"a||b","subVersion":"17","topic":"orders"}]}]}\n'
    )
    (consumer,) = decode_body(data, HeartbeatData).consumer_data_set
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert [(s.sub_string, s.sub_version) for s in consumer.subscription_data_set] == [("a||b", 17)]


@pytest.mark.parametrize("number", [b"-1", b"6", b"true", b"1.5"])
def test_unknown_ordinals_are_refused(number: bytes) -> None:
    """The error names the field."""
    data = (
        b'{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":' + number + b',"consumeType":1,'
        b'"groupName":"g","messageModel":0}]}'
    )
    with pytest.raises(RemoteProtocolError, match="consumeFromWhere"):
        decode_body(data, HeartbeatData)
