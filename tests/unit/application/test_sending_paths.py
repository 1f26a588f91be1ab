"""Sending by listeners, the bridge and channels."""

from collections.abc import Callable

import pytest

from streamkit import ChannelInterceptor, Message, MessageChannel, send_to
from streamkit.application import StreamApplication
from streamkit.binder.attempts import causes
from streamkit.errors import ConfigurationError, MessageConversionError, MessagingError
from streamkit.messaging.headers import PARTITION, SEND_TO_DESTINATION, TAGS
from streamkit.testing.harness import Harness

MakeApplication = Callable[..., StreamApplication]
Start = Callable[[], Harness]


def test_result_may_be_a_message_or_a_list_of_messages(app: StreamApplication, test: Start) -> None:
    """A message is sent as it is, a list one by one; None is not sent."""

    @app.stream_listener("a")
    @send_to("b")
    def answer(text: str) -> Message[str] | list[Message[str]] | None:
        if text == "one":
            return Message("1", {"own": "yes"})
        return [Message(part) for part in text.split()] if text != "none" else None

    harness = test()
    for text in ("one", "none", "2 3"):
        harness.input("a").send(text, {"colour": "red"})
    messages = harness.output("b").receive_all(str)
    assert [message.payload for message in messages] == ["1", "2", "3"]
    assert messages[0].headers["own"] == "yes"
    assert "colour" not in messages[0].headers


def test_empty_list_of_messages_sends_nothing(app: StreamApplication, test: Start) -> None:
    """An empty list is a payload only if the annotation does not declare messages."""

    @app.stream_listener("a")
    @send_to("b")
    async def split(text: str) -> list[Message[str]]:
        return [Message(part) for part in text.split()]

    @app.stream_listener("c")
    @send_to("b")
    async def tell(text: str) -> list[str]:
        return text.split()

    harness = test()
    harness.input("a").send("")
    assert harness.output("b").is_empty
    harness.input("c").send("")
    assert harness.output("b").receive().payload == b"[]"


def test_result_is_sent_to_each_named_binding(app: StreamApplication, test: Start) -> None:
    """send_to takes several."""

    @app.stream_listener("a")
    @send_to("b", "c")
    def answer(text: str) -> str:
        return text

    harness = test()
    harness.input("a").send("x")
    assert harness.output("b").receive(str).payload == "x"
    assert harness.output("c").receive(str).payload == "x"


def test_header_redirects_a_single_result(app: StreamApplication, test: Start) -> None:
    """The header is not sent."""

    @app.stream_listener("a")
    @send_to("b")
    def answer(text: str) -> Message[str]:
        return Message(text, {SEND_TO_DESTINATION: "elsewhere"})

    harness = test()
    harness.input("a").send("x")
    assert SEND_TO_DESTINATION not in harness.output("elsewhere").receive().headers
    assert harness.output("b").is_empty


def test_input_only_headers_are_not_copied(make_app: MakeApplication) -> None:
    """Partition, tags, attempt and the configured ones; without copy_headers none at all."""
    app = make_app(integration__message_handler_not_propagated_headers="contentType,secret")
    app.stream_listener("a")(send_to("b")(lambda text: {"is": "json"}))

    @app.stream_listener("c", copy_headers=False)
    @send_to("b")
    def plain(text: str) -> str:
        return text

    headers = {"secret": "s", "colour": "red", TAGS: "t", "contentType": "text/plain", PARTITION: 2}
    with app.test() as harness:
        harness.input("a").send("x", headers)
        copied = harness.output("b").receive()
        harness.input("c").send("x", headers)
        bare = harness.output("b").receive()
    assert set(copied.headers) - {"id", "timestamp", "streamkit_sequence"} == {
        "colour",
        "contentType",
        PARTITION,
    }
    assert copied.headers.content_type == "application/json"
    assert copied.headers[PARTITION] == 0
    assert "colour" not in bare.headers


def test_bridge_converts_by_content_type(app: StreamApplication, test: Start) -> None:
    """The argument overrides the message's header, which overrides the binding's setting."""
    harness = test()
    assert app.bridge.send("b", {"a": 1})
    assert app.bridge.send("b", Message(12, {"contentType": "application/json"}), content_type="text/plain")
    assert [message.headers.content_type for message in harness.output("b").receive_all()] == [
        "application/json",
        "text/plain",
    ]


def test_the_bridge_sends_headers(app: StreamApplication, test: Start) -> None:
    """Those of a message are replaced where the argument has the same names."""
    harness = test()
    app.bridge.send("b", "x", {"colour": "red"})
    app.bridge.send("b", Message("x", {"colour": "red", "size": 1}), {"colour": "blue"})
    sent = [message.headers.user_values() for message in harness.output("b").receive_all()]
    assert [(headers.get("colour"), headers.get("size")) for headers in sent] == [("red", None), ("blue", 1)]


def test_bridge_refuses_to_send_to_an_input(app: StreamApplication, test: Start) -> None:
    """The error says so."""
    app.stream_listener("a")(lambda text: None)
    test()
    with pytest.raises(ConfigurationError, match="binding 'a' is an input"):
        app.bridge.send("a", "x")


def test_dynamic_destinations_can_be_limited(make_app: MakeApplication) -> None:
    """dynamic-destinations lists the allowed ones; configured bindings are always allowed."""
    app = make_app(dynamic_destinations="allowed")
    with app.test():
        assert app.bridge.send("allowed", "x")
        assert app.bridge.send("b", "x")
        with pytest.raises(ConfigurationError, match="'other' may not be bound"):
            app.bridge.send("other", "x")


def test_similar_destination_names_are_distinct(app: StreamApplication, test: Start) -> None:
    """Binding names are relaxed, destination names are not."""
    harness = test()
    for name in ("or-ders", "orders", "Orders", "orders", "or-ders"):
        app.bridge.send(name, name)
    for name, count in (("or-ders", 2), ("orders", 2), ("Orders", 1)):
        payloads = [message.payload for message in harness.output(name).receive_all(str)]
        assert payloads == [name] * count


def test_destination_at_two_binders_is_two_bindings(make_app: MakeApplication) -> None:
    """Each binding's messages go to its own binder."""
    app = make_app(
        binders__one__type="inmemory",
        binders__two__type="inmemory",
        default_binder="one",
        output_bindings="b",
    )
    with app.test() as harness:
        for binder in (None, "two", "one", "two", None):
            assert app.bridge.send("b", binder or "default", binder=binder)
        payloads = [message.payload for message in harness.output("b").receive_all(str)]
        assert payloads == ["default", "one", "default"]


def test_unwritable_payload_is_the_senders_error(app: StreamApplication, test: Start) -> None:
    """Also with an error channel, since the message itself is wrong."""
    harness = test()
    with pytest.raises(MessagingError) as caught:
        app.bridge.send("b", object())
    (error,) = [cause for cause in causes(caught.value) if isinstance(cause, MessageConversionError)]
    assert str(error).startswith("binding 'b': Cannot write object as JSON")
    assert harness.output("b").is_empty


def test_conversion_error_names_its_binding(app: StreamApplication, test: Start) -> None:
    """The log's one line says where the payload came from."""

    @app.stream_listener("a")
    def listen(numbers: list[int]) -> None:
        raise AssertionError("nothing can be read")

    harness = test()
    harness.input("a").send([1, "two"])
    (error,) = [each.payload for each in harness.errors]
    assert isinstance(error, MessageConversionError)
    assert str(error).startswith("binding 'a': Cannot read the payload as list[int]")
    assert str(error).endswith(f"the listener is {__name__}.{listen.__qualname__}")
    assert error.path == "$[1]"


def test_native_bindings_do_not_convert(make_app: MakeApplication) -> None:
    """use-native-encoding accepts only bytes, use-native-decoding delivers only bytes."""
    app = make_app(bindings__b__producer__use_native_encoding="true", bindings__a__consumer__use_native_decoding="true")
    seen: list[bytes] = []

    @app.stream_listener("a")
    async def listener(payload: bytes) -> None:
        seen.append(payload)

    with app.test() as harness:
        harness.input("a").send({"a": 1})
        app.bridge.send("b", b"\x00\x01")
        assert harness.output("b").receive().payload == b"\x00\x01"
        with pytest.raises(MessagingError, match="sends bytes, not str"):
            app.bridge.send("b", "text")
    assert seen == [b'{"a":1}']


def test_native_listener_cannot_have_a_typed_payload(make_app: MakeApplication) -> None:
    """Nothing would convert it."""
    app = make_app(bindings__a__consumer__use_native_decoding="true")

    @app.stream_listener("a")
    async def listener(payload: dict[str, int]) -> None:
        """Do nothing; it is never called."""

    with pytest.raises(ConfigurationError, match="with use-native-decoding"), app.test():
        pass


class Stamp(ChannelInterceptor):
    """An interceptor that marks messages and stops bad ones."""

    def pre_send(self, message: Message[object], channel: MessageChannel) -> Message[object] | None:
        return None if message.headers.get("bad") else message.with_header("stamped", channel.name)


def test_interceptors_apply_to_matching_bound_channels(app: StreamApplication, test: Start) -> None:
    """Inputs and outputs by pattern; a stopped message is not processed further."""
    app.add_interceptor(Stamp(), "b", "dyn*")
    app.stream_listener("a")(send_to("b")(lambda text: text))
    harness = test()
    harness.input("a").send(b"1")
    harness.input("a").send(b"2", {"bad": True})
    app.bridge.send("dynamic", b"3")
    assert harness.output("b").receive().headers["stamped"] == "b"
    assert harness.output("dynamic").receive().headers["stamped"] == "dynamic"
    assert harness.output("b").is_empty


def test_partition_can_be_selected_by_an_expression(make_app: MakeApplication) -> None:
    """Its root object is the key."""
    app = make_app(
        bindings__b__producer__partition_key_expression="payload",
        bindings__b__producer__partition_selector_expression="length() * 2",
        output_bindings="b",
    )
    with app.test() as harness:
        app.bridge.send("b", "x")
        assert harness.output("b").receive().headers[PARTITION] == 2
