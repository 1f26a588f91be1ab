"""Malformed requests, and a client that sends them under names of its own to any broker."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any

from rocket_remoting import TcpTransport
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from tests.end_to_end.raw_client import RawClient, send_header

Fields = Mapping[str, str]
Request = tuple[Code, Fields, bytes]

SEND = {
    "a": "p",
    "b": "TOPIC",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "",
}
PULL = {
    "consumerGroup": "GROUP", "topic": "TOPIC", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0",
    "expressionType": "TAG",
}  # fmt: skip
OF_QUEUE = {"topic": "TOPIC", "queueId": "0"}
NEW_TOPIC = {"defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
             "topicFilterType": "SINGLE_TAG", "order": "false"}  # fmt: skip
END = {"producerGroup": "p", "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "x"}


def without(fields: Fields, name: str) -> Fields:
    return {key: value for key, value in fields.items() if key != name}


SENDS: list[Request] = [
    (Code.SEND_MESSAGE_V2, fields, b"x")
    for fields in (
        without(SEND, "b"),
        SEND | {"e": "abc"},
        SEND | {"e": "99999999999"},
        SEND | {"i": "\x02\x02\x01\x02novalue\x02a\x01b\x02c\x01"},
        SEND | {"i": "\x01\x01\x02a\x01b\x01c"},
        # The level becomes the highest, which is one second here. Its topic is not the one whose offsets are compared.
        SEND | {"i": "DELAY\x0199", "b": "TOPIC-late"},
        SEND | {"i": "WAIT\x01perhaps"},
        SEND | {"d": "-3", "b": "TOPIC-new"},
        SEND | {"g": "-1"},
        SEND | {"i": "TRAN_MSG\x01maybe"},
        SEND | {"i": "KEYS\x01" + "k" * 40_000},
        SEND | {"i": "a" * 33_000},
        SEND | {"i": "UNIQ_KEY\x01short\x02CLUSTER\x01other"},
        SEND | {"e": "100"},
        SEND | {"b": "x" * 128},
        SEND | {"b": ""},
        SEND | {"unknown": "x", "lo": "false", "ns": "space", "nsd": "true", "bname": "b", "oway": "false"},
    )
]
PULLS: list[Request] = [
    (Code.PULL_MESSAGE, fields, b"")
    for fields in (
        PULL | {"queueOffset": "99999999999999999999"},
        PULL | {"queueOffset": "9223372036854775807"},
        PULL | {"queueOffset": "-9223372036854775808"},
        PULL | {"maxMsgNums": "0"},
        PULL | {"maxMsgNums": "x"},
        without(PULL, "consumerGroup"),
        without(PULL, "subscription"),
        PULL | {"sysFlag": "-1", "suspendTimeoutMillis": "1"},
        PULL | {"unknown": "x", "lo": "false", "ns": "space", "nsd": "true"},
        PULL | {"topic": "space%TOPIC"},
        PULL | {"queueOffset": "-1"},
        PULL | {"queueOffset": "1000"},
        PULL | {"queueId": "99"},
        PULL | {"queueId": "-1"},
        PULL | {"subscription": "||"},
        PULL | {"commitOffset": "-77", "sysFlag": "5"},
        PULL | {"sysFlag": "0"},
    )
]
OFFSETS: list[Request] = [
    (Code.QUERY_CONSUMER_OFFSET, OF_QUEUE | {"consumerGroup": "GROUP", "queueId": "-7"}, b""),
    (Code.UPDATE_CONSUMER_OFFSET, OF_QUEUE | {"consumerGroup": "GROUP", "commitOffset": "many"}, b""),
    (Code.UPDATE_CONSUMER_OFFSET, OF_QUEUE | {"consumerGroup": "GROUP", "commitOffset": str(2**63 - 1)}, b""),
    (Code.QUERY_CONSUMER_OFFSET, OF_QUEUE | {"consumerGroup": "GROUP"}, b""),
    (Code.SEARCH_OFFSET_BY_TIMESTAMP, OF_QUEUE | {"timestamp": "x"}, b""),
    (Code.SEARCH_OFFSET_BY_TIMESTAMP, OF_QUEUE | {"timestamp": "-1"}, b""),
    (Code.SEARCH_OFFSET_BY_TIMESTAMP, OF_QUEUE | {"timestamp": "9223372036854775807"}, b""),
    (Code.SEARCH_OFFSET_BY_TIMESTAMP, OF_QUEUE | {"timestamp": "0", "queueId": "77"}, b""),
    (Code.GET_MAX_OFFSET, OF_QUEUE | {"topic": "TOPIC-no"}, b""),
    (Code.GET_MAX_OFFSET, OF_QUEUE | {"queueId": "99"}, b""),
    (Code.GET_MAX_OFFSET, OF_QUEUE | {"queueId": "-1"}, b""),
    (Code.GET_MIN_OFFSET, {"topic": "TOPIC"}, b""),
    (Code.GET_EARLIEST_MSG_STORETIME, OF_QUEUE | {"queueId": "99"}, b""),
]
FILTER = {"topic": "t", "classFilterMode": False, "codeSet": [], "expressionType": "SQL92", "subVersion": 1,
          "tagsSet": []}  # fmt: skip


def filtering(expression: str | None) -> Request:
    client = {"clientId": "c@1", "group": "g", "subscriptionData": FILTER | {"subString": expression}}
    return Code.CHECK_CLIENT_CONFIG, {}, json.dumps(client).encode()


FILTERS = [
    filtering(expression)
    for expression in (
        "a > 5",
        "a >",
        "",
        None,
        "a ! 5",
        "'unclosed",
        "a = 99999999999999999999",
        "NOT",
        "a IN ()",
    )
]
TRANSACTIONS: list[Request] = [
    (Code.END_TRANSACTION, END | fields, b"")
    for fields in (
        {"tranStateTableOffset": "5", "commitLogOffset": "99999999"},
        {"tranStateTableOffset": "0", "commitLogOffset": "-5"},
        {
            "tranStateTableOffset": "0",
            "commitLogOffset": str(2**63 - 1),
            "transactionId": "of another broker",
        },
        {"tranStateTableOffset": "0", "commitLogOffset": "99999999", "commitOrRollback": "5"},
        {"tranStateTableOffset": "x", "commitLogOffset": "99999999"},
        {"commitLogOffset": "99999999", "commitOrRollback": "12"},
    )
]
OTHERS: list[Request] = [
    (Code.VIEW_MESSAGE_BY_ID, {"offset": "-1"}, b""),
    (Code.VIEW_MESSAGE_BY_ID, {"offset": "4611686018427387904"}, b""),
    (Code.QUERY_MESSAGE, {"topic": "TOPIC"}, b""),
    (Code.CONSUMER_SEND_MSG_BACK, {"group": "GROUP"}, b""),
    (Code.CONSUMER_SEND_MSG_BACK, {"group": "GROUP", "offset": "-1", "delayLevel": "0"}, b""),
    (Code.VIEW_MESSAGE_BY_ID, {"offset": "x"}, b""),
    (Code.CONSUMER_SEND_MSG_BACK, {"group": "GROUP", "offset": "0", "delayLevel": "x"}, b""),
    (Code.CONSUMER_SEND_MSG_BACK, {"group": "GROUP", "offset": "99999999", "delayLevel": "0"}, b""),
    (Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": "zz"}, b""),
    (Code.HEART_BEAT, {}, b"not json"),
    (Code.HEART_BEAT, {}, b""),
    (Code.HEART_BEAT, {}, b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[],"new":{"a":[1]}}'),
    (Code.LOCK_BATCH_MQ, {}, b""),
    (Code.UNLOCK_BATCH_MQ, {}, b"[]"),
    (Code.CHECK_CLIENT_CONFIG, {}, b"x"),
    (Code.GET_CONSUMER_LIST_BY_GROUP, {}, b""),
    (Code.INVOKE_BROKER_TO_RESET_OFFSET,
     {"topic": "TOPIC-no", "group": "GROUP", "timestamp": "0", "isForce": "true"}, b""),
    (Code.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "GROUP", "clientId": "nobody", "jstackEnable": "false"}, b""),
    (Code.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "GROUP", "clientId": "nobody", "msgId": "zz"}, b""),
    (Code.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | {"topic": "bad name"}, b""),
    (Code.DELETE_TOPIC_IN_BROKER, {"topic": "TOPIC-no"}, b""),
    (Code.DELETE_TOPIC_IN_BROKER, {}, b""),
    (Code.CLONE_GROUP_OFFSET, {"srcGroup": "a", "destGroup": "b", "topic": "TOPIC-no"}, b""),
    (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b""),
    (Code.GET_TOPIC_STATS_INFO, {"topic": "TOPIC-no"}, b""),
    (Code.GET_CONSUME_STATS, {"consumerGroup": "GROUP-no"}, b""),
    (Code.QUERY_CONSUME_QUEUE, OF_QUEUE | {"index": "0", "count": "3", "topic": "TOPIC-no"}, b""),
]  # fmt: skip
QUEUED = 9
"""So many messages are in the queue of `SEND` after all `SENDS`."""

COMPARED = ("nextBeginOffset", "minOffset", "maxOffset", "offset", "queueId", "queueOffset", "timestamp")


class Side:
    """A client of one broker, with its own names.

    Attributes:
        remarks: Those of the answers that were no success.
    """

    def __init__(self, client: RawClient, address: str) -> None:
        self.client = client
        self.address = address
        self.topic = f"malformed-{secrets.token_hex(4)}"
        self.remarks: list[str] = []

    async def ask(self, request: Request) -> RemotingCommand:
        """Send one request, on a new connection if the last one was closed."""
        code, fields, body = request
        if self.client.connection.is_closed:
            self.client = await RawClient.connect(TcpTransport(), self.address)
        named = {name: value.replace("TOPIC", self.topic).replace("GROUP", f"g-{self.topic}")
                 for name, value in fields.items()}  # fmt: skip
        return await self.client.connection.invoke(code, None, body, timeout=60, ext_fields=named)

    async def answers(self) -> list[Any]:
        """Return code and offsets of each answer, and the finally stored messages."""
        await self.client.ask_ok(Code.SEND_MESSAGE_V2, send_header(self.topic), b"hello")
        reported: list[Any] = [await self._answer(request) for request in SENDS]
        while await self.client.end(self.topic) < QUEUED:  # noqa: ASYNC110 - Apache queues them a little later
            await asyncio.sleep(0.05)
        reported += [await self._answer(request) for request in (*PULLS, *OFFSETS, *TRANSACTIONS, *FILTERS, *OTHERS)]
        stored = await self.client.messages(self.topic)
        # Brokers of 5.x store the region with each message, and so do ours.
        properties = [{name: text for name, text in m.properties.items() if name != "MSG_REGION"} for m in stored]
        return [*reported, [(m.body, own, m.born_timestamp) for m, own in zip(stored, properties, strict=True)]]

    async def _answer(self, request: Request) -> tuple[str, int, Fields]:
        answer = await self.ask(request)
        fields = answer.ext_fields or {}
        if answer.code != ResponseCode.SUCCESS:
            self.remarks.append(answer.remark or "")
        return str(request), answer.code, {name: fields[name] for name in COMPARED if name in fields}
