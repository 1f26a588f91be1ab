"""Frames recorded between Apache's Java client, broker and name server: two versions, both encodings."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rocket_remoting.wire.batch import decode_batch
from rocket_remoting.wire.bodies import (
    Body,
    ClusterInfo,
    ConsumeStats,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    TopicConfig,
    TopicRouteData,
    TopicStatsTable,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.bodies.registration import read_registration
from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.ext_fields import Header, to_fields
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetRouteInfoRequestHeader,
    GetTopicStatsInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    RegisterBrokerRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.record import decode_records, encode_record, peek_record
from rocket_remoting.wire.sys_flag import COMPRESSED

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))

HEADERS: dict[str, type[Header]] = {
    "consume-stats-request": GetConsumeStatsRequestHeader,
    "consumer-list-request": GetConsumerListByGroupRequestHeader,
    "create-topic-request": CreateTopicRequestHeader,
    "earliest-store-time-request": GetEarliestMsgStoretimeRequestHeader,
    "earliest-store-time-response": GetEarliestMsgStoretimeResponseHeader,
    "max-offset-request": GetMaxOffsetRequestHeader,
    "max-offset-response": GetMaxOffsetResponseHeader,
    "min-offset-request": GetMinOffsetRequestHeader,
    "min-offset-response": GetMinOffsetResponseHeader,
    "notify-consumer-ids-request": NotifyConsumerIdsChangedRequestHeader,
    "pull-found-request": PullMessageRequestHeader,
    "pull-found-response": PullMessageResponseHeader,
    "pull-not-found-request": PullMessageRequestHeader,
    "pull-not-found-response": PullMessageResponseHeader,
    "pull-retry-topic-request": PullMessageRequestHeader,
    "pull-retry-topic-response": PullMessageResponseHeader,
    "query-message-request": QueryMessageRequestHeader,
    "query-message-response": QueryMessageResponseHeader,
    "query-offset-request": QueryConsumerOffsetRequestHeader,
    "query-offset-response": QueryConsumerOffsetResponseHeader,
    "register-broker-request": RegisterBrokerRequestHeader,
    "route-request": GetRouteInfoRequestHeader,
    "route-unknown-request": GetRouteInfoRequestHeader,
    "search-offset-request": SearchOffsetRequestHeader,
    "search-offset-response": SearchOffsetResponseHeader,
    "send-back-request": ConsumerSendMsgBackRequestHeader,
    "send-batch-request": SendMessageRequestHeaderV2,
    "send-batch-response": SendMessageResponseHeader,
    "send-compressed-request": SendMessageRequestHeaderV2,
    "send-compressed-response": SendMessageResponseHeader,
    "send-oneway-request": SendMessageRequestHeaderV2,
    "send-refused-request": SendMessageRequestHeaderV2,
    "send-request": SendMessageRequestHeaderV2,
    "send-response": SendMessageResponseHeader,
    "topic-stats-request": GetTopicStatsInfoRequestHeader,
    "unregister-request": UnregisterClientRequestHeader,
    "update-offset-request": UpdateConsumerOffsetRequestHeader,
    "view-message-request": ViewMessageRequestHeader,
}

BODIES: dict[str, type[Body]] = {
    "cluster-info-response": ClusterInfo,
    "consume-stats-response": ConsumeStats,
    "consumer-list-response": GetConsumerListByGroupResponseBody,
    "heartbeat-request": HeartbeatData,
    "lock-request": LockBatchRequestBody,
    "lock-response": LockBatchResponseBody,
    "route-response": TopicRouteData,
    "topic-stats-response": TopicStatsTable,
    "unlock-request": UnlockBatchRequestBody,
}


def golden(*names: str) -> list[Any]:
    """Return the recorded files as test parameters, optionally only those with these names."""
    files = [(path, json.loads(path.read_text())) for path in GOLDEN]
    return [pytest.param(content, id=path.stem) for path, content in files if not names or content["name"] in names]


def decode(frame: dict[str, Any]) -> RemotingCommand:
    """Return the one command of a recorded frame."""
    (command,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
    return command


def facts(command: RemotingCommand) -> dict[str, Any]:
    """Return a command in the form of a recorded file's ``expect``."""
    return {
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "language": command.language,
        "version": command.version,
        "remark": command.remark,
        "encoding": command.encoding.name,
        "ext_fields": command.ext_fields,
        "body_hex": bytes(command.body).hex(),
    }


def test_recordings_exist() -> None:
    """Without recorded frames the other tests would be empty."""
    assert len(GOLDEN) > 100


@pytest.mark.parametrize("frame", golden())
def test_frame_is_decoded_to_the_recorded_values(frame: dict[str, Any]) -> None:
    """Which the recorder took from Java."""
    assert facts(decode(frame)) == frame["expect"]


@pytest.mark.parametrize("frame", golden())
def test_decoded_frame_is_encoded_equally(frame: dict[str, Any]) -> None:
    """With the same content, and in binary with the same number of bytes."""
    again = b"".join(decode(frame).encode())
    (command,) = FrameDecoder().feed(again)
    assert facts(command) == frame["expect"]
    if command.encoding is HeaderEncoding.ROCKETMQ:
        assert again == bytes.fromhex(frame["hex"])


@pytest.mark.parametrize("frame", golden(*HEADERS))
def test_typed_header_keeps_every_field(frame: dict[str, Any]) -> None:
    """It writes every recorded field, and adds only defaults."""
    type_ = HEADERS[frame["name"]]
    recorded = frame["expect"]["ext_fields"]
    written = to_fields(decode(frame).header(type_))
    assert {name: written.get(name) for name in recorded} == recorded
    added = {name: written[name] for name in written.keys() - recorded.keys()}
    assert set(added.values()) <= {"false", "true", "-1", "0"}, added


@pytest.mark.parametrize("frame", golden(*BODIES))
def test_typed_body_round_trip(frame: dict[str, Any]) -> None:
    """From the recorded bytes, and from its own in either form."""
    body = decode_body(decode(frame).body, BODIES[frame["name"]])
    for standard in (False, True):
        again = encode_body(body, standard_json=standard)
        assert decode_body(again, BODIES[frame["name"]]) == body


@pytest.mark.parametrize("frame", golden("register-broker-request"))
def test_broker_registration_body_is_read(frame: dict[str, Any]) -> None:
    """Compressed or not."""
    command = decode(frame)
    header = command.header(RegisterBrokerRequestHeader)
    described = read_registration(bytes(command.body), compressed=header.compressed)
    assert "TBW102" in {item.topic_name for item in described if isinstance(item, TopicConfig)}


@pytest.mark.parametrize("frame", golden("pull-found-response"))
def test_records_equal_javas_messages(frame: dict[str, Any]) -> None:
    """Those that Java's listener got from a recorded pull."""
    messages = {message.queue_offset: described(message) for message in decode_records(decode(frame).body)}
    assert frame["records"]
    for record in frame["records"]:
        assert messages[record["offset"]] == expected(record)


@pytest.mark.parametrize("frame", golden("pull-found-response", "pull-retry-topic-response"))
def test_records_are_encoded_to_the_same_bytes(frame: dict[str, Any]) -> None:
    """From the fields of a recorded one."""
    data, position = decode(frame).body, 0
    while position < len(data):
        head = peek_record(data, position)
        again = encode_record(
            head.topic,
            data[head.body_position : head.body_position + head.body_length],
            head.properties,
            queue_id=head.queue_id,
            queue_offset=head.queue_offset,
            commit_log_offset=head.commit_log_offset,
            sys_flag=head.sys_flag,
            flag=head.flag,
            born_timestamp=head.born_timestamp,
            born_host=head.born_host,
            store_timestamp=head.store_timestamp,
            store_host=head.store_host,
            reconsume_times=head.reconsume_times,
            prepared_transaction_offset=head.prepared_transaction_offset,
        )
        assert again == bytes(data[position : position + head.total_size])
        position += head.total_size


@pytest.mark.parametrize("frame", golden("send-batch-request"))
def test_recorded_batch_has_two_messages(frame: dict[str, Any]) -> None:
    """A recorded batch opens into its messages."""
    assert [entry.body for entry in decode_batch(decode(frame).body)] == [b"first", b"second"]


def described(message: MessageExt) -> dict[str, Any]:
    """Return one of our messages in the form of the recorder's Java listener."""
    return {
        "body": message.body,
        "bodyCrc": message.body_crc,
        "bornHost": message.born_host[0],
        "bornTimestamp": message.born_timestamp,
        "commitLogOffset": message.commit_log_offset,
        "flag": message.flag,
        "id": message.msg_id,
        "keys": message.keys,
        "offset": message.queue_offset,
        "offsetId": message.offset_message_id,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
        "queue": message.queue_id,
        "reconsumeTimes": message.reconsume_times,
        "storeSize": message.store_size,
        "storeTimestamp": message.store_timestamp,
        "sysFlag": message.sys_flag,
        "tags": message.tags,
        "topic": message.topic,
    }


def expected(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the listener received, without the broker's name (in no record) and the compressed flag (kept
    by 4.9)."""
    rest = {name: value for name, value in record.items() if name != "broker"}
    rest |= {"body": base64.b64decode(record["body"]), "sysFlag": record["sysFlag"] & ~COMPRESSED}
    return {"keys": None, "tags": None} | rest
