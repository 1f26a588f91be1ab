"""Settings of another binder type than the binding's: refused if they decide about deliveries, else named."""

import logging
from pathlib import Path

import pytest

from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError

OTHERS = {
    "kafka": [("rocketmq", "tags=paid"), ("rocketmq", "subscription=sql:a > 1"), ("rocketmq", "broadcasting=true")],
    "rocketmq": [("kafka", "ordered=true"), ("kafka", "destination-is-pattern=true"), ("inmemory", "tags=paid")],
    "inmemory": [("kafka", "ordered=true"), ("kafka", "start-offset=earliest"), ("inmemory", "broadcast=true")],
}
CONSUMERS = [(binder, *each) for binder, settings in OTHERS.items() for each in settings]
PRODUCERS = [
    ("kafka", "rocketmq", "transactional=true"),
    ("kafka", "rocketmq", "producer-type=Trans"),
    ("kafka", "rocketmq", "message-queue-selector=chosen"),
    ("rocketmq", "kafka", "header-patterns=!secret,*"),
    ("rocketmq", "kafka", "use-topic-header=true"),
    ("inmemory", "kafka", "use-topic-header=true"),
    ("rocketmq", "inmemory", "transactional=true"),
]


def start(directory: Path, binder: str, *settings: str) -> None:
    """Start an application with an input `in` and an output `out`; nothing listens at its binders' addresses."""
    file = directory / "application.properties"
    lines = [f"default-binder={binder}", "output-bindings=out", "bindings.in.group=g", *settings]
    file.write_text("\n".join(f"spring.cloud.stream.{line}" for line in lines))
    app = StreamApplication(config_location=file)
    app.stream_listener("in")(lambda: None)
    with app:
        pass


def refusal(directory: Path, binder: str, *settings: str) -> ConfigurationError:
    """Return the error with which the start is refused; the last setting is to blame."""
    with pytest.raises(ConfigurationError) as caught:
        start(directory, binder, *settings)
    assert str(caught.value.origin).endswith(f"application.properties:{4 - 1 + len(settings)}")
    return caught.value


@pytest.mark.parametrize(("binder", "other", "setting"), CONSUMERS)
def test_unread_consumer_setting_that_changes_delivery_is_refused(
    tmp_path: Path, binder: str, other: str, setting: str
) -> None:
    """The start fails before anything connects, with the key, the file and the line."""
    error = refusal(tmp_path, binder, f"{other}.bindings.in.consumer.{setting}")
    assert error.key == f"spring.cloud.stream.{other}.bindings.in.consumer.{setting.partition('=')[0]}"
    assert f"binding 'in' uses binder '{binder}'" in str(error)


@pytest.mark.parametrize(("binder", "other", "setting"), PRODUCERS)
def test_unread_producer_setting_that_changes_delivery_is_refused(
    tmp_path: Path, binder: str, other: str, setting: str
) -> None:
    """Messages would become visible too early, or go elsewhere, or carry headers that must not travel."""
    error = refusal(tmp_path, binder, f"{other}.bindings.out.producer.{setting}")
    assert error.key == f"spring.cloud.stream.{other}.bindings.out.producer.{setting.partition('=')[0]}"


@pytest.mark.parametrize(
    ("binder", "setting", "advice"),
    [
        ("kafka", "tags=paid", "select the messages with the condition of a listener, and remove this setting"),
        ("kafka", "broadcasting=true", "the same with spring.cloud.stream.kafka.bindings.in.consumer.broadcast, or"),
        ("kafka", "enabled=false", "set spring.cloud.stream.bindings.in.consumer.auto-startup=false, and remove"),
    ],
)
def test_refusal_names_the_setting_to_use_instead(tmp_path: Path, binder: str, setting: str, advice: str) -> None:
    """It names the setting of the binding's own type, if that type can do the same."""
    assert advice in str(refusal(tmp_path, binder, f"rocketmq.bindings.in.consumer.{setting}"))


def test_refusal_in_memory_names_the_setting_stands_in_for(tmp_path: Path) -> None:
    """The binder in memory reads the settings of one type, which a setting chooses."""
    error = refusal(tmp_path, "inmemory", "kafka.bindings.in.consumer.ordered=true")
    assert "set spring.cloud.stream.inmemory.binder.stands-in-for=kafka, or remove this setting" in str(error)
    start(
        tmp_path,
        "inmemory",
        "inmemory.binder.stands-in-for=kafka",
        "kafka.bindings.in.consumer.ordered=true",
    )


def test_setting_is_accepted_if_the_binding_has_the_same_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So one file may hold the settings of both systems; nothing is said about them."""
    caplog.set_level(logging.WARNING)
    start(
        tmp_path,
        "inmemory",
        "inmemory.binder.stands-in-for=inmemory",
        "rocketmq.bindings.in.consumer.subscription=a || b",
        "inmemory.bindings.in.consumer.tags=b||a",
        "rocketmq.bindings.in.consumer.orderly=true",
        "inmemory.bindings.in.consumer.ordered=true",
    )
    assert not [text for text in caplog.messages if "has no effect" in text]


def test_unread_setting_that_does_not_change_delivery_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning has the place, the key and the reason."""
    start(
        tmp_path,
        "inmemory",
        "kafka.bindings.in.consumer.poll-timeout=100ms",
        "kafka.bindings.in.consumer.ordered=false",
        "kafka.default.producer.sync=false",
    )
    reported = [text.partition("application.properties:")[2] for text in caplog.messages if "has no effect" in text]
    assert reported == [
        f"{line}: spring.cloud.stream.kafka.{key} has no effect: binding '{name}' uses a binder of type 'rocketmq'"
        for line, key, name in (
            (4, "bindings.in.consumer.poll-timeout", "in"),
            (5, "bindings.in.consumer.ordered", "in"),
            (6, "default.producer.sync", "out"),
        )
    ]


def test_unread_default_is_refused_unless_a_binding_uses_its_type(tmp_path: Path) -> None:
    """With two systems in one application, `<type>.default.*` is about the bindings of the type."""
    default = "kafka.default.consumer.ordered=true"
    assert refusal(tmp_path, "inmemory", default).key == "spring.cloud.stream.kafka.default.consumer.ordered"
    start(
        tmp_path,
        "here",
        "binders.here.type=inmemory",
        "binders.there.type=inmemory",
        "binders.there.environment.spring.cloud.stream.inmemory.binder.stands-in-for=kafka",
        "bindings.out.binder=there",
        default,
    )


def test_harness_refuses_the_settings_that_the_application_refuses(tmp_path: Path) -> None:
    """The binder in memory stands for the binder of the settings, whose type decides."""
    table = {"default-binder": "kafka", "bindings.a.group": "g", "rocketmq.bindings.a.consumer.tags": "paid"}
    app = StreamApplication(
        config_location="optional:/none",
        properties={f"spring.cloud.stream.{key}": value for key, value in table.items()},
    )
    app.stream_listener("a")(lambda: None)
    with pytest.raises(ConfigurationError, match="reads settings of type 'kafka' only"), app.test():
        pass
