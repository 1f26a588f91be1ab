"""Which name servers are asked, and whose answer counts."""

import pytest

from rocket_client.core.inquiry import Inquiry
from rocket_client.core.name_server_calls import topic_route
from rocket_client.core.name_server_order import SILENCE_SECONDS, NameServerOrder
from rocket_remoting.wire.bodies import TopicRouteData, encode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, ResponseError


def answer(code: int = ResponseCode.SUCCESS, body: bytes = b"") -> RemotingCommand:
    """Return an answer as a name server sends it."""
    return RemotingCommand.response(RemotingCommand.request(0), code, None, body)


KNOWN = TopicRouteData(queue_datas=[], broker_datas=[])
ROUTE = answer(body=encode_body(KNOWN))
UNKNOWN = answer(ResponseCode.TOPIC_NOT_EXIST)


def asked(
    order: NameServerOrder, answers: dict[str, RemotingCommand | None], now: float = 0.0
) -> tuple[list[str], object]:
    """Ask for a route; None is no answer. Return who was asked, and the result."""
    inquiry, addresses = Inquiry(order, topic_route("orders"), now), []
    for address in inquiry:
        addresses.append(address)
        response = answers[address]
        if response is None:
            inquiry.failed(address, ConnectError(address, "refused"))
        else:
            inquiry.answered(address, response)
    return addresses, inquiry.result()


def test_name_server_that_knows_the_topic_is_believed() -> None:
    """The others are not asked."""
    order = NameServerOrder(["a:1", "b:1"])
    first, second = order.in_turn()
    assert asked(order, {first: ROUTE, second: UNKNOWN}) == ([first], KNOWN)


def test_others_are_asked_for_a_topic_that_one_does_not_know() -> None:
    """It may have been started just now. It stays the one that is asked first."""
    order = NameServerOrder(["a:1", "b:1"])
    first, second = order.in_turn()
    assert asked(order, {first: UNKNOWN, second: ROUTE}) == ([first, second], KNOWN)
    assert asked(order, {first: UNKNOWN, second: UNKNOWN}) == ([first, second], None)
    assert order.current == first


def test_silent_name_server_is_not_asked_for_each_unknown_topic() -> None:
    """It would cost the time to connect each time."""
    order = NameServerOrder(["a:1", "b:1"])
    first, second = order.in_turn()
    answers = {first: UNKNOWN, second: None}
    assert asked(order, answers, 0.0) == ([first, second], None)
    assert asked(order, answers, SILENCE_SECONDS - 1) == ([first], None)
    assert asked(order, answers, SILENCE_SECONDS) == ([first, second], None)
    assert asked(order, {first: None, second: UNKNOWN}, SILENCE_SECONDS + 1) == ([first, second], None)
    assert asked(order, {first: ROUTE, second: UNKNOWN}, 3 * SILENCE_SECONDS) == ([second, first], KNOWN)


def test_refusal_counts_if_no_other_one_has_answered() -> None:
    """One that does not know the topic has answered."""
    order = NameServerOrder(["a:1", "b:1"])
    first, second = order.in_turn()
    refusal = answer(ResponseCode.SYSTEM_ERROR)
    assert asked(order, {first: UNKNOWN, second: refusal}) == ([first, second], None)
    with pytest.raises(ResponseError):
        asked(order, {first: refusal, second: ROUTE})
