"""Generated SQL92 expressions on generated properties: the same messages match on Apache's broker and ours."""

import asyncio
import secrets
from contextlib import AsyncExitStack
from itertools import product
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import TcpTransport
from rocket_remoting.wire.bodies import CheckClientRequestBody, SubscriptionData
from rocket_remoting.wire.codes import RequestCode as Code
from tests.end_to_end.raw_client import RawClient
from tests.peer.apache import ApacheBroker

EXPRESSIONS = 120

A = [None, "5", "-5", "05", "+7", "5.0", "2.5", " 5 ", "5f", "5L", "1e1", "3000000000", "-0", "0", "NaN", "Infinity",
     "true", "FALSE", "x", "it's", "0x1p3", "\u0665", "abc", "9223372036854775808"]  # fmt: skip
B = [None, "5", "7.5", "true", "x"]
MESSAGES = [{name: value for name, value in zip("ab", values, strict=True) if value} for values in product(A, B)]

names = st.sampled_from(["a", "a", "a", "b", "b", "missing", "A"])
texts = st.sampled_from(["'x'", "'5'", "'it''s'", "'true'", "''", "'abc'", "'b'"])
integers = st.sampled_from(["0", "5", "7", "2147483647", "2147483648", "3000000000", "5L", "10"])
doubles = st.sampled_from(["5.0", "2.5", "5.", ".5", "1e1", "7.5E0", "0.0", "1e400"])
constants = st.sampled_from(["TRUE", "false", "NULL"])
numbers = st.one_of(integers, doubles, st.one_of(integers, doubles).map("-{}".format))
operands = st.one_of(names, names, numbers, texts, constants, names.map("- {}".format), names.map("+{}".format))
lists = st.lists(texts, min_size=1, max_size=6).map(", ".join)
comparisons = st.one_of(
    st.tuples(operands, st.sampled_from(["=", "<>"]), operands).map(" ".join),
    st.tuples(names, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.one_of(names, numbers)).map(" ".join),
    st.tuples(operands, st.sampled_from(["<", "<=", ">", ">="]), operands).map(" ".join),
    st.tuples(names, st.sampled_from(["BETWEEN", "NOT BETWEEN"]), numbers, st.just("AND"), numbers).map(" ".join),
    st.tuples(names, st.sampled_from(["IN", "not in"]), lists.map("({})".format)).map(" ".join),
    st.tuples(operands, st.sampled_from(["IS NULL", "is not null"])).map(" ".join),
    operands,
)
expressions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR", "=", "<>"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("NOT ({})".format),
        inner.map("NOT {}".format),
        inner.map("({}) IS NULL".format),
    ),
    max_leaves=5,
)
newer = st.tuples(
    names, st.sampled_from(["", "NOT"]), st.sampled_from(["CONTAINS", "startswith", "ENDSWITH"]), texts
).map(" ".join)
"""Only 5.x has these."""


class Side(NamedTuple):
    """A client of one of the brokers, and the topic with the messages there."""

    client: RawClient
    topic: str

    async def send_messages(self) -> None:
        """Store one message for each set of properties, its number as the body."""
        for number, properties in enumerate(MESSAGES):
            await self.client.send(self.topic, str(number).encode(), properties=properties)
        while await self.client.end(self.topic) < len(MESSAGES):  # noqa: ASYNC110 - Apache queues them a little later
            await asyncio.sleep(0.05)

    async def matching(self, expression: str) -> tuple[int, list[bytes]]:
        """Return whether the expression is valid, and which messages it matches."""
        data = SubscriptionData(topic=self.topic, sub_string=expression, expression_type="SQL92")
        body = CheckClientRequestBody(client_id="c", group="g", subscription_data=data)
        code = (await self.client.ask(Code.CHECK_CLIENT_CONFIG, None, body)).code
        if code:
            return code, []
        bodies: list[bytes] = []
        offset = 0
        while offset < len(MESSAGES):
            pulled = await self.client.pull(
                self.topic, offset, subscription=expression, expression_type="SQL92", max_msg_nums=32
            )
            bodies += pulled.bodies
            offset = pulled.header.next_begin_offset
        return code, bodies


def test_same_messages_match_on_apaches_broker_and_ours(apache_broker: ApacheBroker) -> None:
    """Also where Java's conversions fail, and for invalid expressions."""
    some = expressions if apache_broker.version.startswith("4.9") else st.one_of(expressions, newer)

    async def prepare(stack: AsyncExitStack) -> tuple[Side, Side]:
        ours = await stack.enter_async_context(EmbeddedBroker())
        sides = []
        for address in (apache_broker.address, ours.broker_address):
            client = await RawClient.connect(TcpTransport(), address)
            stack.push_async_callback(client.connection.close)
            sides.append(Side(client, f"sql-{secrets.token_hex(4)}"))
            await sides[-1].send_messages()
        return sides[0], sides[1]

    async def both(theirs: Side, ours: Side, text: str) -> tuple[tuple[int, list[bytes]], tuple[int, list[bytes]]]:
        return await asyncio.gather(theirs.matching(text), ours.matching(text))

    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            theirs, ours = runner.run(prepare(stack))

            @settings(max_examples=EXPRESSIONS, deadline=None, derandomize=True, database=None)
            @given(some)
            def answer_alike(text: str) -> None:
                expected, answered = runner.run(both(theirs, ours, text))
                assert answered == expected, text

            answer_alike()
        finally:
            runner.run(stack.aclose())
