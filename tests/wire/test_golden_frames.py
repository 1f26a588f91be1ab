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
    read_registration,
)
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
    """The recorded files, of these names only where any are given, as test parameters."""
    files = [(path, json.loads(path.read_text())) for path in GOLDEN]
    return [pytest.param(content, id=path.stem) for path, content in files if not names or content["name"] in names]


def decode(frame: dict[str, Any]) -> RemotingCommand:
    """The one command of a recorded frame."""
    (command,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
    return command


def facts(command: RemotingCommand) -> dict[str, Any]:
    """A command in the words of a recorded file's ``expect``."""
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


def test_there_are_recordings() -> None:
    """A run without recorded frames would prove nothing."""
    assert len(GOLDEN) > 100


@pytest.mark.parametrize("frame", golden())
def test_frame_says_what_was_recorded(frame: dict[str, Any]) -> None:
    """A recorded frame decodes to the values its recorder read from it."""
    assert facts(decode(frame)) == frame["expect"]


@pytest.mark.parametrize("frame", golden())
def test_frame_survives_being_encoded_again(frame: dict[str, Any]) -> None:
    """What was decoded encodes to a frame that says the same, and in binary to the same number of bytes."""
    again = b"".join(decode(frame).encode())
    (command,) = FrameDecoder().feed(again)
    assert facts(command) == frame["expect"]
    if command.encoding is HeaderEncoding.ROCKETMQ:
        assert again == bytes.fromhex(frame["hex"])


@pytest.mark.parametrize("frame", golden(*HEADERS))
def test_header_holds_every_field(frame: dict[str, Any]) -> None:
    """A typed header loses nothing: it writes back every field that was recorded, and adds only defaults."""
    type_ = HEADERS[frame["name"]]
    recorded = frame["expect"]["ext_fields"]
    written = to_fields(decode(frame).header(type_))
    assert {name: written.get(name) for name in recorded} == recorded
    added = {name: written[name] for name in written.keys() - recorded.keys()}
    assert set(added.values()) <= {"false", "true", "-1", "0"}, added


@pytest.mark.parametrize("frame", golden(*BODIES))
def test_body_survives_being_encoded_again(frame: dict[str, Any]) -> None:
    """A typed body decodes from what was recorded, and from what it encodes to itself in either form."""
    body = decode_body(decode(frame).body, BODIES[frame["name"]])
    for standard in (False, True):
        again = encode_body(body, standard_json=standard)
        assert decode_body(again, BODIES[frame["name"]]) == body


@pytest.mark.parametrize("frame", golden("register-broker-request"))
def test_register_broker_body(frame: dict[str, Any]) -> None:
    """A broker's report of its topics can be read, packed or not."""
    command = decode(frame)
    header = command.header(RegisterBrokerRequestHeader)
    told = read_registration(bytes(command.body), compressed=header.compressed)
    assert "TBW102" in {item.topic_name for item in told if isinstance(item, TopicConfig)}


@pytest.mark.parametrize("frame", golden("pull-found-response"))
def test_records_are_what_java_saw(frame: dict[str, Any]) -> None:
    """A recorded pull's records decode to the messages that Java's listener noted."""
    messages = {message.queue_offset: told(message) for message in decode_records(decode(frame).body)}
    assert frame["records"]
    for record in frame["records"]:
        assert messages[record["offset"]] == expected(record)


@pytest.mark.parametrize("frame", golden("pull-found-response", "pull-retry-topic-response"))
def test_records_encode_to_the_same_bytes(frame: dict[str, Any]) -> None:
    """A record built from what a recorded one says is that record, byte by byte."""
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
def test_batch_holds_two_messages(frame: dict[str, Any]) -> None:
    """A recorded batch opens into its messages."""
    assert [entry.body for entry in decode_batch(decode(frame).body)] == [b"first", b"second"]


def told(message: MessageExt) -> dict[str, Any]:
    """A message of ours in the words of the recorder's Java listener."""
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
    """What the listener saw, without the broker's name (in no record) and the packed bit (kept by 4.9)."""
    rest = {name: value for name, value in record.items() if name != "broker"}
    rest |= {"body": base64.b64decode(record["body"]), "sysFlag": record["sysFlag"] & ~COMPRESSED}
    return {"keys": None, "tags": None} | rest
