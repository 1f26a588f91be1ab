"""Codes, errors, topic names and exported names."""

import pickle

import pytest

import rocket_remoting
from rocket_remoting.wire.codes import RequestCode, ResponseCode, request_name, response_name
from rocket_remoting.wire.errors import (
    ConnectError,
    ConnectionLost,
    RemotingError,
    RequestTimeout,
    ResponseError,
)
from rocket_remoting.wire.topics import (
    dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    retry_topic,
    validate_group,
    validate_topic,
)


def test_exported_names_exist_and_are_sorted() -> None:
    """Each name in `__all__`."""
    assert sorted(rocket_remoting.__all__) == rocket_remoting.__all__
    assert all(getattr(rocket_remoting, name) for name in rocket_remoting.__all__)


def test_codes_have_names() -> None:
    """An unknown code is shown as a number."""
    assert request_name(RequestCode.SEND_MESSAGE_V2) == "SEND_MESSAGE_V2 (310)"
    assert request_name(424242) == "request 424242"
    assert response_name(ResponseCode.TOPIC_NOT_EXIST) == "TOPIC_NOT_EXIST (17)"
    assert response_name(4242) == "response code 4242"


def test_response_code_209_has_its_present_name() -> None:
    """Where 4.9 and 5.x name a number differently, 5.x's name is shown."""
    assert response_name(209) == "POLLING_FULL (209)"


@pytest.mark.parametrize(
    "error",
    [
        ConnectError("10.0.0.1:10911", "refused"),
        ConnectionLost("10.0.0.1:10911"),
        RequestTimeout("10.0.0.1:10911", RequestCode.PULL_MESSAGE, 3.0),
        ResponseError(17, "No topic route", address="10.0.0.1:9876", request_code=105),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: RemotingError) -> None:
    """With their attributes, since Spark's executors send them to the driver."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_response_error_has_request_address_code_and_remark() -> None:
    """All in its text."""
    error = ResponseError(17, "no route", address="10.0.0.1:9876", request_code=105)
    assert str(error) == ("GET_ROUTEINFO_BY_TOPIC (105) to 10.0.0.1:9876 answered TOPIC_NOT_EXIST (17): no route")


def test_retry_and_dead_letter_topics_contain_the_group() -> None:
    """With RocketMQ's prefixes."""
    assert retry_topic("orders") == "%RETRY%orders"
    assert dlq_topic("orders") == "%DLQ%orders"
    assert is_retry_topic("%RETRY%orders")
    assert not is_retry_topic("orders")


def test_system_topics_and_groups_are_recognised() -> None:
    """By name or prefix."""
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_anything")
    assert not is_system_topic("orders")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("orders")


@pytest.mark.parametrize("name", ["orders", "%RETRY%a-b_c", "a|b", "x" * 127])
def test_legal_names_are_accepted(name: str) -> None:
    """Letters, digits and _ - % | are legal."""
    validate_topic(name)
    validate_group(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "blank"), ("  ", "blank"), ("a b", "character"), ("订单", "character"), ("a\n", "character")],
)
def test_illegal_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    """As by Apache's broker."""
    with pytest.raises(ValueError, match=f"topic name.*{reason}"):
        validate_topic(name)
    with pytest.raises(ValueError, match=f"group name.*{reason}"):
        validate_group(name)


def test_long_names_are_refused() -> None:
    """A topic may have 127 characters, a group 255."""
    with pytest.raises(ValueError, match="128 characters"):
        validate_topic("x" * 128)
    validate_group("x" * 255)
    with pytest.raises(ValueError, match="256 characters"):
        validate_group("x" * 256)
