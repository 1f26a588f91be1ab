"""Error handlers and retry policies that settings refer to by name."""

from collections.abc import Callable
from pathlib import Path

import pytest
from dependency_injector import containers, providers

from streamkit.application import StreamApplication
from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.errors import BinderError, ConfigurationError, ConfigurationErrors
from streamkit.messaging.message import ErrorMessage, Message

MakeApplication = Callable[..., StreamApplication]


async def fail(payload: str) -> None:
    """Raise an error."""
    raise ValueError(payload)


def test_default_error_handler_serves_bindings_without_their_own(make_app: MakeApplication) -> None:
    """`default.error-handler-definition`; a binding's own takes precedence."""
    heard: list[str] = []
    app = make_app(default__error_handler_definition="everywhere", bindings__b__error_handler_definition="here")
    app.named("everywhere")(lambda error: heard.append("everywhere"))
    app.named("here")(lambda error: heard.append("here"))
    app.stream_listener("a")(fail)
    app.stream_listener("b")(fail)
    with app.test() as test:
        for name in ("a", "b"):
            test.input(name).send("x")
            test.advance(seconds=5)
        assert heard == ["everywhere", "here"]
        assert len(test.errors) == 2, "errorChannel hears of what is handled, too"


def test_error_handler_may_come_from_a_container(make_app: MakeApplication) -> None:
    """By its provider's name."""

    class Errors(list[ErrorMessage]):
        def __call__(self, error: ErrorMessage) -> None:
            self.append(error)

    class Parts(containers.DeclarativeContainer):
        """The user's container."""

        audit = providers.Singleton(Errors)

    parts = Parts()
    app = StreamApplication(
        config_location="optional:/none",
        container=parts,
        properties={
            "spring.cloud.stream.bindings.a.group": "g",
            "spring.cloud.stream.bindings.a.error-handler-definition": "audit",
        },
    )
    app.stream_listener("a")(fail)
    with app.test() as test:
        test.input("a").send("x")
        test.advance(seconds=5)
    assert len(parts.audit()) == 1


def test_failed_send_goes_to_the_bindings_error_handler(make_app: MakeApplication) -> None:
    """With error-channel-enabled the sender gets no exception; the handler gets the unsent message."""
    heard: list[ErrorMessage] = []
    app = make_app(bindings__b__producer__error_channel_enabled="true", bindings__b__error_handler_definition="unsent")
    app.register("unsent", heard.append)
    with app.test():
        assert app.bridge.send("b", Message("lost", {"impossible": object()}))
    (error,) = heard
    assert error.original_message is not None
    assert error.original_message.payload == b"lost"
    assert isinstance(error.payload.__cause__, BinderError)


def write(directory: Path, *settings: str) -> StreamApplication:
    """Return an application with one listener and these settings of its binding."""
    file = directory / "application.properties"
    lines = (
        "spring.cloud.stream.default-binder=inmemory",
        "spring.cloud.stream.bindings.a.group=g",
        *settings,
    )
    file.write_text("\n".join(lines))
    app = StreamApplication(config_location=file)
    app.stream_listener("a")(fail)
    return app


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("error-handler-definition", "handel", "nothing is registered as 'handel'; did you mean 'handle'?"),
        (
            "error-handler-definition",
            "policy",
            "'policy' is RetryPolicy.*, not a function of an ErrorMessage",
        ),
        ("error-handler-definition", "wrong", "cannot handle errors: it is called with one ErrorMessage"),
        ("consumer.retry-template-name", "handle", "'handle' is .*, not a RetryPolicy"),
        ("consumer.retry-template-name", "slow", "Register a RetryPolicy with app.register"),
    ],
)
def test_unknown_name_is_reported_with_file_and_line(tmp_path: Path, setting: str, value: str, reason: str) -> None:
    """At startup, with suggestions."""
    app = write(tmp_path, f"spring.cloud.stream.bindings.a.{setting}={value}")
    app.register("handle", lambda error: None)
    app.register("wrong", lambda: None)
    app.register("policy", RetryPolicy())
    with pytest.raises(ConfigurationError, match=reason) as caught, app.test():
        pass
    assert f"application.properties:3: spring.cloud.stream.bindings.a.{setting}={value}" in str(caught.value)
    assert not isinstance(caught.value, ConfigurationErrors)


def test_default_retry_policy_serves_bindings_without_their_own(make_app: MakeApplication) -> None:
    """max-attempts=1 disables retries whatever the policy says."""
    calls: list[str] = []

    async def note(payload: str) -> None:
        calls.append(payload)
        raise ValueError(payload)

    app = make_app(bindings__b__consumer__max_attempts="1", bindings__c__consumer__retry_template_name="own")
    app.use_retry_policy(RetryPolicy(5, BackOff(initial=0.1)))
    app.register("own", RetryPolicy(2, BackOff(initial=0.1)))
    for name in "abc":
        app.stream_listener(name)(note)
    with app.test() as test:
        for name in "abc":
            test.input(name).send(name)
            test.advance(seconds=2)
    assert "".join(calls) == "aaaaa" + "b" + "cc"


def test_name_can_be_registered_once(app: StreamApplication) -> None:
    """Another object under that name is an error; the same object is not."""
    policy = RetryPolicy()
    app.register("slow", policy)
    app.register("slow", policy)
    with pytest.raises(ValueError, match="'slow' is the name of RetryPolicy"):
        app.register("slow", RetryPolicy(7))
