"""Requests that crash the handlers of Apache's broker, or that nobody can mean; our broker refuses or serves them."""

import asyncio

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import TcpTransport
from rocket_remoting.wire.codes import RequestCode as Code
from tests.end_to_end.malformed_requests import NEW_TOPIC, OF_QUEUE, PULL, SEND, Request, Side
from tests.end_to_end.raw_client import RawClient, send_header

REQUESTS: list[tuple[Request, int]] = [
    ((Code.SEND_MESSAGE_V2, SEND | {"i": "DELAY\x01abc"}, b"x"), 13),  # NumberFormatException
    ((Code.PULL_MESSAGE, PULL | {"maxMsgNums": "-5"}, b""), 0),  # IllegalArgumentException
    ((Code.PULL_MESSAGE, PULL | {"maxMsgNums": "2147483647"}, b""), 0),  # OutOfMemoryError
    ((Code.PULL_MESSAGE, PULL | {"expressionType": "XPATH"}, b""), 1),  # gets everything
    ((Code.PULL_MESSAGE, PULL | {"expressionType": "SQL92", "subscription": "a >"}, b""), 23),  # gets everything
    ((Code.QUERY_MESSAGE, {"topic": "TOPIC", "key": "k", "maxNum": "-1", "beginTimestamp": "5",
                           "endTimestamp": "1"}, b""), 22),  # IllegalArgumentException
    ((Code.QUERY_CONSUMER_OFFSET, OF_QUEUE, b""), 1),  # answers for no group
    ((Code.HEART_BEAT, {}, b"{}"), 1),  # takes a client without an id
    ((Code.LOCK_BATCH_MQ, {}, b"{}"), 1),  # locks for nobody
    ((Code.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | {"topic": "TOPIC-x", "readQueueNums": "-1"}, b""), 29),  # makes it
]  # fmt: skip
"""The requests and the codes of our broker's answers; the comments say what Apache's does."""


def test_requests_that_crash_apaches_handler_are_refused_or_served() -> None:
    """Answers of refused requests have a remark that says what is wrong."""

    async def main() -> None:
        async with EmbeddedBroker() as embedded:
            address = embedded.broker_address
            side = Side(await RawClient.connect(TcpTransport(), address), address)
            await side.client.ask_ok(Code.SEND_MESSAGE_V2, send_header(side.topic), b"hello")
            for request, code in REQUESTS:
                answer = await side.ask(request)
                assert answer.code == code, (request, answer)
                assert answer.remark or not code
            await side.client.connection.close()

    asyncio.run(main())
