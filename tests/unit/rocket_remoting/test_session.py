"""The session: request numbers, answers, timeouts and closing. The test provides bytes and times."""

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_remoting.session.session import MAX_OPAQUE, Session
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.headers import GetMaxOffsetRequestHeader

ASK = RequestCode.GET_MAX_OFFSET


def make_session(*, max_pending: int = 100, next_opaque: int = 0) -> Session[str]:
    """Return a session with a peer called ``peer:1``."""
    return Session("peer:1", FrameDecoder(), max_pending=max_pending, next_opaque=next_opaque)


def sent(pieces: list[Buffer]) -> RemotingCommand:
    """Return the one command that the peer reads."""
    (command,) = FrameDecoder().feed(b"".join(pieces))
    return command


def answer_to(request: RemotingCommand, body: bytes = b"") -> bytes:
    """Return the frame that answers a request."""
    return b"".join(RemotingCommand.response(request, body=body).encode())


def take(session: Session[str], data: bytes, sizes: Iterable[int] = ()) -> Iterator[tuple[str, bytes]]:
    """Give the session the bytes in reads of these sizes; yield waiters and bodies."""
    reads = iter(sizes)
    while data:
        room = session.decoder.writable()
        count = min(next(reads, len(data)), len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        for waiter, response in session.received(count):
            yield waiter, bytes(response.body)


def test_request_is_a_frame_with_its_own_number() -> None:
    """With header, additional fields and body."""
    session = make_session()
    header = GetMaxOffsetRequestHeader(topic="t", queue_id=3)
    first = sent(session.request("a", ASK, header, b"body", ext_fields={"traceId": "7"}))
    second = sent(session.request("b", ASK))
    assert (first.code, first.opaque, first.is_oneway, first.body) == (ASK, 0, False, b"body")
    assert first.header(GetMaxOffsetRequestHeader) == header
    assert first.ext_fields["traceId"] == "7"
    assert second.opaque == 1
    assert session.in_flight == 2


@given(st.permutations(range(6)), st.lists(st.integers(1, 40)))
def test_answers_find_their_requests(order: list[int], sizes: list[int]) -> None:
    """In any order and however the bytes are split."""
    session = make_session()
    requests = [sent(session.request(f"waiter {number}", ASK)) for number in range(6)]
    data = b"".join(answer_to(requests[number], b"%d" % number) for number in order)
    assert list(take(session, data, sizes)) == [(f"waiter {number}", b"%d" % number) for number in order]
    assert session.in_flight == 0


def test_answer_may_arrive_byte_by_byte() -> None:
    """The request ends with the last byte."""
    session = make_session()
    data = answer_to(sent(session.request("a", ASK)), b"body")
    assert list(take(session, data[:-1], [1] * len(data))) == []
    assert session.in_flight == 1
    assert list(take(session, data[-1:])) == [("a", b"body")]


def test_duplicate_and_unknown_answers_are_dropped() -> None:
    """Only the first answer counts."""
    session = make_session()
    data = answer_to(sent(session.request("a", ASK)))
    assert list(take(session, data + data + answer_to(RemotingCommand(ASK, opaque=77)))) == [("a", b"")]


def test_peers_requests_do_not_end_ours() -> None:
    """Although their numbers may be equal."""
    session = make_session()
    session.request("a", ASK)
    pushed = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=True)
    assert list(take(session, b"".join(pushed.encode()))) == []
    assert session.in_flight == 1


def test_malformed_frame_is_an_error_after_earlier_answers() -> None:
    """Complete answers before it are returned first."""
    session = make_session()
    data = answer_to(sent(session.request("a", ASK)))
    answers = take(session, data + b"GET / HTTP/1.1\r\n")
    assert next(answers) == ("a", b"")
    with pytest.raises(RemoteProtocolError, match="looks like text"):
        session.received(0)


def test_requests_time_out_in_order() -> None:
    """Each after its own timeout, not before."""
    session = make_session()
    session.request("late", ASK, now=10.0, timeout=5.0)
    session.request("early", RequestCode.HEART_BEAT, now=11.0, timeout=1.0)
    session.request("never", ASK)
    assert session.next_due == 12.0
    assert session.expire(11.999) == []
    ((waiter, error),) = session.expire(12.0)
    assert waiter == "early"
    assert isinstance(error, RequestTimeout)
    assert (error.address, error.request_code, error.timeout) == ("peer:1", RequestCode.HEART_BEAT, 1.0)
    assert session.next_due == 15.0
    assert [waiter for waiter, _ in session.expire(1e9)] == ["late"]
    assert (session.next_due, session.in_flight, session.oldest_code) == (None, 1, ASK)


def test_late_answer_is_dropped() -> None:
    """Its request has ended; the next request is not affected."""
    session = make_session()
    late = sent(session.request("a", ASK, now=0.0, timeout=1.0))
    session.request("b", ASK, now=0.5, timeout=1.0)
    assert [waiter for waiter, _ in session.expire(1.0)] == ["a"]
    assert list(take(session, answer_to(late))) == []
    assert [waiter for waiter, _ in session.expire(1.5)] == ["b"]


def test_answered_request_does_not_time_out() -> None:
    """While others are pending."""
    session = make_session()
    first = sent(session.request("a", ASK, now=0.0, timeout=1.0))
    session.request("b", ASK, now=0.0, timeout=2.0)
    assert list(take(session, answer_to(first))) == [("a", b"")]
    assert session.expire(1.0) == []
    assert session.next_due == 2.0


def test_timeouts_are_cleared_when_all_are_answered() -> None:
    """No entry is kept after the last answer."""
    session = make_session()
    requests = [sent(session.request("a", ASK, now=0.0, timeout=9.0)) for _ in range(3)]
    assert len(list(take(session, b"".join(map(answer_to, requests))))) == 3
    assert session.next_due is None


def test_request_numbers_wrap_and_skip_pending_ones() -> None:
    """2^31 - 1 is followed by 0, unless that number is pending."""
    session = make_session(next_opaque=0)
    oldest = sent(session.request("oldest", ASK, now=0.0, timeout=100.0))
    session._next_opaque = MAX_OPAQUE  # two thousand million requests later
    last = sent(session.request("last", ASK, now=50.0, timeout=1.0))
    after = sent(session.request("after", ASK, now=50.0, timeout=1.0))
    assert [command.opaque for command in (oldest, last, after)] == [0, MAX_OPAQUE, 1]
    assert list(take(session, answer_to(oldest))) == [("oldest", b"")]
    assert [waiter for waiter, _ in session.expire(51.0)] == ["after", "last"]


def test_reused_number_has_its_own_timeout() -> None:
    """Not that of the earlier request."""
    session = make_session(next_opaque=5)
    first = sent(session.request("first", ASK, now=0.0, timeout=10.0))
    session.request("other", ASK, now=0.0, timeout=90.0)
    assert list(take(session, answer_to(first))) == [("first", b"")]
    session._next_opaque = 5
    assert sent(session.request("second", ASK, now=8.0, timeout=10.0)).opaque == 5
    assert session.expire(10.0) == []
    assert [waiter for waiter, _ in session.expire(18.0)] == ["second"]


def test_oneway_requests_have_numbers_but_no_answer() -> None:
    """They skip pending numbers too."""
    session = make_session(next_opaque=MAX_OPAQUE)
    session.request("a", ASK)
    session._next_opaque = MAX_OPAQUE
    command = sent(session.oneway(RequestCode.UPDATE_CONSUMER_OFFSET, None, b"x", {"k": "v"}))
    assert (command.is_oneway, command.opaque, command.body, command.ext_fields) == (
        True,
        0,
        b"x",
        {"k": "v"},
    )
    assert session.in_flight == 1
    assert list(take(session, answer_to(command))) == []
    assert sent(session.request("b", ASK)).opaque == 1


def test_full_table_refuses_requests_until_one_ends() -> None:
    """The error names the request and the peer; a one-way request takes no place."""
    session = make_session(max_pending=2)
    first = sent(session.request("a", ASK, now=0.0, timeout=1.0))
    session.request("b", ASK, now=0.0, timeout=2.0)
    session.oneway(ASK)
    with pytest.raises(TooManyRequests, match=r"2 requests to peer:1 .*HEART_BEAT"):
        session.request("c", RequestCode.HEART_BEAT)
    assert list(take(session, answer_to(first))) == [("a", b"")]
    session.request("c", ASK, now=0.0, timeout=1.0)
    session.expire(1.0)
    session.request("d", ASK)


def test_unencodable_request_is_not_registered() -> None:
    """The table of pending requests is unchanged, and the next request gets the number."""
    session = make_session()
    too_long = {"k": "x" * 2**24}
    with pytest.raises(LocalProtocolError):
        session.request("a", ASK, ext_fields=too_long, now=0.0, timeout=1.0)
    with pytest.raises(LocalProtocolError):
        session.oneway(ASK, ext_fields=too_long)
    assert (session.in_flight, session.next_due) == (0, None)
    assert sent(session.request("b", ASK)).opaque == 0


def test_closed_session_refuses_requests_with_its_first_reason() -> None:
    """Answers that still arrive are delivered."""
    session = make_session()
    request = sent(session.request("a", ASK))
    session.close("closed on this side")
    session.close("closed by the peer")
    for begin in (lambda: session.request("b", ASK), lambda: session.oneway(ASK)):
        with pytest.raises(ConnectionLost, match="peer:1 lost: closed on this side"):
            begin()
    assert list(take(session, answer_to(request))) == [("a", b"")]


def test_close_fails_all_pending_requests() -> None:
    """Each once, with its own error."""
    session = make_session()
    session.request("a", ASK, now=0.0, timeout=1.0)
    session.request("b", ASK)
    session.close("closed by the peer")
    failed = session.fail_all()
    assert [(waiter, error.address, error.reason) for waiter, error in failed] == [
        ("a", "peer:1", "closed by the peer"),
        ("b", "peer:1", "closed by the peer"),
    ]
    assert failed[0][1] is not failed[1][1]
    assert (session.fail_all(), session.expire(1e9), session.in_flight) == ([], [], 0)


@given(st.data())
def test_each_waiter_is_returned_exactly_once(data: st.DataObject) -> None:
    """By an answer, a timeout or the close, in any sequence of events."""
    session = make_session(next_opaque=MAX_OPAQUE - 3)
    requests: dict[str, RemotingCommand] = {}
    ended: list[str] = []
    now = 0.0
    for number in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["request", "request", "answer", "expire"])):
            case "request":
                timeout = data.draw(st.none() | st.integers(0, 5).map(float))
                waiter = f"waiter {number}"
                requests[waiter] = sent(session.request(waiter, ASK, now=now, timeout=timeout))
            case "answer" if requests:
                waiter = data.draw(st.sampled_from(sorted(requests)))
                answered = [name for name, _ in take(session, answer_to(requests[waiter]))]
                assert answered == ([] if waiter in ended else [waiter])
                ended += answered
            case _:
                now += data.draw(st.integers(0, 3))
                ended += [name for name, _ in session.expire(now)]
        assert session.in_flight == len(requests) - len(ended)
    session.close("over")
    ended += [name for name, _ in session.fail_all()]
    assert sorted(ended) == sorted(requests)
