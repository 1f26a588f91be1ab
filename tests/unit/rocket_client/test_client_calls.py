"""Client calls without a connection: the requests, and the meaning of the answers."""

import pytest

from rocket_client.core import name_server_calls, offset_calls
from rocket_client.core.call import Call
from rocket_client.core.name_server_order import NameServerOrder
from rocket_client.core.pull_answer import PullAnswer, PullStatus
from rocket_client.core.pull_request import pull_header
from rocket_client.core.subscription import tag_subscription
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    GetMaxOffsetResponseHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND

QUEUE = MessageQueue("orders", "broker-a", 3)


def answer(code: int = ResponseCode.SUCCESS, header: Header | None = None, body: bytes = b"") -> RemotingCommand:
    """Return an answer as a peer sends it."""
    return RemotingCommand.response(RemotingCommand.request(0), code, header, body, "as the peer says")


def test_offset_is_read_from_the_answer() -> None:
    """The call names the queue and its broker."""
    call = offset_calls.max_offset(QUEUE)
    fields = RemotingCommand.request(call.code, call.header).ext_fields
    assert (fields["topic"], fields["queueId"], fields["bname"]) == ("orders", "3", "broker-a")
    assert call.result(answer(header=GetMaxOffsetResponseHeader(offset=7)), "broker:1") == 7


@pytest.mark.parametrize(
    "call",
    [
        offset_calls.min_offset(QUEUE),
        offset_calls.search_offset(QUEUE, 1),
        offset_calls.commit_offset(QUEUE, "kitchen", 5),
        name_server_calls.topics(),
        name_server_calls.topic_route("orders"),
    ],
)
def test_refusal_raises_a_response_error(call: Call[object]) -> None:
    """With the peer's remark, its address and the request."""
    with pytest.raises(ResponseError, match="as the peer says") as caught:
        call.result(answer(ResponseCode.SYSTEM_BUSY), "broker:1")
    assert (caught.value.code, caught.value.address, caught.value.request_code) == (
        ResponseCode.SYSTEM_BUSY, "broker:1", call.code,
    )  # fmt: skip


def test_missing_committed_offset_is_no_error() -> None:
    """The group may have committed nothing yet."""
    call = offset_calls.committed_offset(QUEUE, "kitchen")
    assert call.result(answer(ResponseCode.QUERY_NOT_FOUND), "broker:1") is None
    assert call.result(answer(header=QueryConsumerOffsetResponseHeader(offset=0)), "broker:1") == 0


def test_commit_sends_the_offset() -> None:
    """Its answer has no content."""
    call = offset_calls.commit_offset(QUEUE, "kitchen", 5)
    assert isinstance(call.header, UpdateConsumerOffsetRequestHeader)
    assert call.header.commit_offset == 5
    assert call.result(answer(), "broker:1") is None


@pytest.mark.parametrize("nothing", [answer(ResponseCode.TOPIC_NOT_EXIST, body=b"{}"), answer()])
def test_unknown_topic_has_no_route(nothing: RemotingCommand) -> None:
    """Reported by the code, or by an answer without a body."""
    assert name_server_calls.topic_route("orders").result(nothing, "ns:1") is None


def test_next_name_server_is_asked_after_a_failure() -> None:
    """Each is asked once, from any start; the one that answers becomes the preferred one."""
    order = NameServerOrder(["a:1", "b:1", "c:1"])
    first, second, third = order.in_turn()
    assert {first, second, third} == {"a:1", "b:1", "c:1"}
    order.failed(first, 0.0)
    assert order.in_turn() == (second, third, first)
    order.failed(second, 0.0)
    order.failed(first, 0.0)  # the failure of a request that was sent before
    assert order.in_turn() == (third, first, second)
    order.failed(third, 0.0)
    assert order.current == first


@pytest.mark.parametrize(
    ("hold_ms", "commit", "posts", "lite", "flag"),
    [
        (0, 0, True, False, PULL_SUBSCRIPTION),
        (15_000, 0, False, False, PULL_SUSPEND),
        (0, 9, False, False, PULL_COMMIT_OFFSET),
        (15_000, 9, True, True, PULL_SUSPEND | PULL_COMMIT_OFFSET | PULL_SUBSCRIPTION | PULL_LITE),
    ],
)
def test_pull_flags_follow_the_subscription(hold_ms: int, commit: int, posts: bool, lite: bool, flag: int) -> None:
    """The expression is sent with subscriptions that post it."""
    header = pull_header(
        "kitchen", QUEUE, 4, tag_subscription("orders", "a || b", 8),
        max_messages=32, hold_ms=hold_ms, commit=commit, posts_subscription=posts, lite=lite,
    )  # fmt: skip
    assert (header.sys_flag, header.suspend_timeout_millis, header.commit_offset) == (flag, hold_ms, commit)
    assert header.subscription == ("a || b" if posts else None)
    assert (header.queue_offset, header.max_msg_nums, header.sub_version) == (4, 32, 8)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, PullStatus.FOUND),
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW_MSG),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED_MSG),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_pull_results_follow_the_answer_code(code: int, status: PullStatus) -> None:
    """Each of the four has offsets and the suggested broker id."""
    header = PullMessageResponseHeader(suggest_which_broker_id=1, next_begin_offset=9, min_offset=2, max_offset=11)
    assert PullAnswer.of(answer(code, header, b"records"), "broker:1") == (status, 9, 2, 11, 1, b"records")


def test_refused_pull_is_an_error() -> None:
    """It names the request."""
    with pytest.raises(ResponseError) as caught:
        PullAnswer.of(answer(ResponseCode.NO_PERMISSION), "broker:1", RequestCode.LITE_PULL_MESSAGE)
    assert caught.value.request_code == RequestCode.LITE_PULL_MESSAGE
