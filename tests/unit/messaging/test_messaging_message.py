"""Messages and their headers."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from uuid import UUID

import pytest

from streamkit.clock import SystemClock, current_clock, use_clock
from streamkit.errors import MessageHandlingError
from streamkit.messaging import ErrorMessage, Message, MessageHeaders


class StoppedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def test_id_and_timestamp_are_created_once():
    """The id is a version 4 UUID; like the timestamp it never changes."""
    with use_clock(StoppedClock()):
        headers = Message("a").headers
        assert headers.timestamp == headers["timestamp"] == 1_700_000_000_000
    assert headers.timestamp == 1_700_000_000_000
    assert UUID(headers.id).version == 4
    assert headers.id == headers["id"] == headers.get("id")


def test_ids_differ():
    """No two messages share an id."""
    assert len({Message("a").headers.id for _ in range(1000)}) == 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_ids_differ_after_fork():
    """A forked child does not repeat its parent's ids."""
    script = """
import os
from streamkit.messaging import Message
child = os.fork()
if child:
    os.waitpid(child, 0)
os.write(1, Message("a").headers.id.encode() + b" ")
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert len(set(printed.stdout.split())) == 2


def test_equality_ignores_id_and_timestamp():
    """Messages with equal payloads and headers are equal."""
    assert Message("a", {"k": 1}) == Message("a", {"k": 1})
    assert Message("a", {"k": 1}) != Message("a", {"k": 2})
    assert Message("a") != Message("b")
    assert Message("a") != "a"
    assert len({Message("a"), Message("a")}) == 1


def test_message_is_immutable():
    """Neither its parts nor its headers can be replaced."""
    message = Message("a", {"k": 1})
    with pytest.raises(AttributeError):
        message.payload = "b"
    with pytest.raises(TypeError):
        message.headers["k"] = 2


def test_given_mapping_is_copied():
    """Later changes of the dictionary have no effect."""
    given = {"k": 1}
    message = Message("a", given)
    given["k"] = 2
    assert message.headers["k"] == 1


def test_derived_message_has_a_new_id():
    """It keeps the other headers."""
    message = Message.create("a", {"k": 1}, n=2)
    derived = message.with_header("k", 3).with_payload("b")
    assert derived == Message("b", {"k": 3, "n": 2})
    assert derived.headers.id != message.headers.id
    assert message == Message("a", {"k": 1, "n": 2})


def test_none_removes_a_header():
    """Like `without_header`."""
    message = Message("a", {"k": 1})
    assert message.with_header("k", None) == message.without_header("k") == Message("a")


@pytest.mark.parametrize("name", ["id", "timestamp"])
def test_id_and_timestamp_are_read_only(name):
    """Nobody sets a message's id or timestamp."""
    with pytest.raises(ValueError, match=f"header {name} is read-only"):
        Message("a").with_header(name, "x")


def test_headers_are_a_complete_mapping():
    """Iteration, length and membership include id and timestamp."""
    headers = Message("a", {"k": 1}).headers
    assert "id" in headers
    assert set(headers) == {"k", "id", "timestamp"}
    assert len(headers) == 3
    assert headers == MessageHeaders({"k": 1})
    assert headers == dict(headers)
    with pytest.raises(KeyError):
        headers["missing"]


def test_typed_header():
    """A header of the wrong type is an error with its actual type."""
    headers = MessageHeaders({"n": "3"})
    assert headers.typed("n", str) == "3"
    assert headers.typed("missing", int) is None
    with pytest.raises(TypeError, match="header 'n' is the str '3', not of type int"):
        headers.typed("n", int)


def test_setting_the_content_type_keeps_the_id():
    """On the way out it is the same message."""
    headers = Message("a").headers
    sent = headers.with_content_type("text/plain")
    assert (sent.id, sent.timestamp, sent.content_type) == (headers.id, headers.timestamp, "text/plain")
    assert sent.with_content_type("text/plain") is sent


def test_annotating_keeps_the_id():
    """A header added by the framework does not make another message."""
    headers = Message("a").headers
    identity = headers.id
    assert headers.annotated("deliveryAttempt", 2).id == identity


def test_error_message_has_the_original_message():
    """From its exception if necessary."""
    failed = Message("a")
    error = MessageHandlingError("no", failed)
    assert ErrorMessage(error).original_message is failed
    assert ErrorMessage(ValueError("x")).original_message is None
    assert ErrorMessage(ValueError("x"), original_message=failed).original_message is failed


def test_repr_shows_payload_and_headers():
    """As an expression that creates the message."""
    assert repr(Message("a", {"k": 1})) == "Message('a', {'k': 1})"


def test_system_clock_is_the_default():
    """Outside `use_clock`."""
    assert isinstance(current_clock(), SystemClock)


def test_annotated_message_has_the_same_id_and_timestamp() -> None:
    """Also if neither was read before."""
    headers = Message("x").headers
    annotated = headers.annotated("colour", "red")
    assert (annotated.id, annotated.timestamp) == (headers.id, headers.timestamp)


def test_headers_of_one_message_share_what_is_made_later() -> None:
    """Whichever is read first; the time of the sharing may become the timestamp."""
    headers = Message("x").headers
    received = headers.sharing({"colour": "red"}, now_ms=5)
    assert received == {"colour": "red", "id": received.id, "timestamp": 5}
    assert (headers.id, headers.timestamp) == (received.id, 5)
    read = Message("x").headers
    made = read.id, read.timestamp
    again = read.sharing({}, now_ms=5).annotated("colour", "red")
    assert (again.id, again.timestamp) == made


def test_header_named_id_is_not_shared() -> None:
    """A plugin may give a message the id under which it was sent before."""
    headers = Message("x").headers
    named = headers.annotated("id", "mine")
    assert [each.id for each in (named, named.annotated("colour", "red"))] == ["mine", "mine"]
    assert headers.id != "mine"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_copies_of_a_message_whose_id_was_never_read_have_its_id(copied: Callable[[Message[str]], Message[str]]):
    """Likewise its timestamp."""
    message = Message("a")
    headers = copied(message).headers
    assert (headers.id, headers.timestamp) == (message.headers.id, message.headers.timestamp)


def test_messages_can_be_copied_and_pickled() -> None:
    """With their headers and ids."""
    message = Message("a", {"k": 1})
    assert message.headers.id
    for same in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert same == message
        assert same.headers.id == message.headers.id


def test_headers_offer_no_dictionary_to_change() -> None:
    """No public attribute is the dictionary in which the headers are kept."""
    headers = Message("a").headers
    assert not [name for name in dir(headers) if name[0] != "_" and isinstance(getattr(headers, name), dict)]


class Interrupting:
    """A clock in whose first question another thread reads the timestamp of a message, or derives one from it."""

    def __init__(self, other: Callable[[], object]) -> None:
        self._other = other
        self._asked = 0
        self.heard: list[object] = []

    def now_ms(self) -> int:
        self._asked += 1
        asked = self._asked
        if asked == 1:
            context = copy_context()  # threads have no clock of their own
            thread = Thread(target=lambda: self.heard.append(context.run(self._other)))
            thread.start()
            thread.join()
        return asked


@pytest.mark.parametrize("derived", [False, True])
def test_threads_that_read_a_timestamp_at_once_read_the_same(derived: bool) -> None:
    """Also of headers that were derived meanwhile, such as those of a further delivery."""
    headers = Message(b"x").headers

    def read() -> int:
        return headers.annotated("n", 1).timestamp if derived else headers.timestamp

    with use_clock(Interrupting(read)) as clock:
        first = headers.timestamp
        assert clock.heard == [first] == [headers.timestamp]


class WatchedValues(dict[str, object]):
    """Values of headers; another thread derives headers from these as soon as the headers share their id."""

    headers: MessageHeaders
    heard: str | None = None

    def __contains__(self, name: object) -> bool:
        if self.heard is None and self.headers._shared is not None:
            self.heard = "begun"
            thread = Thread(target=self._derive)
            thread.start()
            thread.join()
        return super().__contains__(name)

    def _derive(self) -> None:
        self.heard = self.headers.sharing({}).id


def test_threads_that_derive_headers_at_once_derive_the_same_id() -> None:
    """Of headers that have an id when the first thread begins."""
    values = WatchedValues({"id": "mine"})
    values.headers = MessageHeaders.adopt(values)
    assert values.headers.annotated("n", 1).id == "mine"
    assert "n" not in values.headers
    assert values.heard == "mine"
