"""The meaning of `spring.cloud.stream.*`."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import pytest

from streamkit.config.durations import Milliseconds, Minutes, Seconds
from streamkit.config.environment import Environment
from streamkit.config.extended import extended_problems
from streamkit.config.properties_file import parse_properties
from streamkit.config.setting_limits import Accepted, Rejected
from streamkit.config.settings import HeaderMode, SettingsModel, StreamSettings
from streamkit.config.settings_model import setting
from streamkit.config.shape import Separator
from streamkit.config.source import EnvironmentVariables, KeyedSource
from streamkit.errors import ConfigurationErrors, UnknownSetting

PREFIX = "spring.cloud.stream"
NO_INTEGER = "expected a valid integer, unable to parse string as an integer"
AT_LEAST_1 = "greater than or equal to 1"


def environment(text="", **variables):
    """Return an environment of one .properties file and environment variables."""
    documents = parse_properties(text, "application.properties")
    files = [KeyedSource("application.properties", document.entries) for document in documents]
    return Environment([EnvironmentVariables(variables), *reversed(files)])


def load(text="", types=("rocketmq",), **variables):
    return StreamSettings.load(environment(text, **variables), types)


def errors_of(text, **variables):
    """Return the texts of all errors of loading."""
    with pytest.raises(ConfigurationErrors) as caught:
        load(text, **variables)
    return [str(error) for error in caught.value.errors]


def test_defaults_equal_springs():
    """Without any setting everything is as Spring has it."""
    settings = load()
    binding = settings.binding("input")
    assert (binding.destination, binding.group, binding.content_type) == ("input", None, None)
    assert (binding.consumer.concurrency, binding.consumer.max_attempts) == (1, 3)
    assert binding.consumer.back_off_initial_interval == timedelta(seconds=1)
    assert (settings.instance_count, settings.instance_index) == (1, 0)
    assert settings.binding_retry_interval == timedelta(seconds=30)


def test_binding_inherits_from_the_defaults():
    """Its own settings, then `default.*`, then the built-in default; never the default's destination."""
    settings = load(
        "spring.cloud.stream.default.group=g\n"
        "spring.cloud.stream.default.destination=nonsense\n"
        "spring.cloud.stream.default.consumer.maxAttempts=5\n"
        "spring.cloud.stream.default.consumer.concurrency=7\n"
        "spring.cloud.stream.bindings.input.consumer.max-attempts=2\n"
    )
    known, unknown = settings.binding("input"), settings.binding("other")
    assert (known.group, known.consumer.max_attempts, known.consumer.concurrency) == ("g", 2, 7)
    assert (unknown.group, unknown.consumer.max_attempts, unknown.destination) == ("g", 5, "other")
    assert known.destination == "input"


@pytest.mark.parametrize("name", ["processIn", "PROCESSIN", "process-in"])
def test_binding_names_are_relaxed(name):
    """In any case."""
    settings = load("spring.cloud.stream.bindings.processIn.group=g")
    assert settings.binding(name).group == "g"
    assert settings.configured_name(name) == "processIn"


def test_environment_variables_reach_into_bindings():
    """The words of a variable's name find binding and setting, whatever separates them."""
    settings = load(
        "spring.cloud.stream.bindings.process-in-0.group=g\nspring.cloud.stream.bindings[my.orders].group=g",
        SPRING_CLOUD_STREAM_BINDINGS_PROCESS_IN_0_CONSUMER_MAXATTEMPTS="9",
        SPRING_CLOUD_STREAM_BINDINGS_MY_ORDERS_CONSUMER_MAX_ATTEMPTS="8",
        SPRING_CLOUD_STREAM_BINDINGS_OUTPUT_DESTINATION="t",
        SPRING_CLOUD_STREAM_DYNAMICDESTINATIONS_0="a",
        SPRING_CLOUD_STREAM_DYNAMICDESTINATIONS_1="b",
    )
    assert settings.binding("process-in-0").consumer.max_attempts == 9
    assert settings.binding("my.orders").consumer.max_attempts == 8
    assert settings.binding("output").destination == "t"
    assert settings.dynamic_destinations == ["a", "b"]
    assert set(settings.bindings) == {"process-in-0", "my.orders", "output"}


def test_lists():
    """As one text or by index, from the strongest source that has any element."""
    settings = load(
        "spring.cloud.stream.output-bindings=a; b\n"
        "spring.cloud.stream.dynamic-destinations[0]=x\nspring.cloud.stream.dynamic-destinations[1]=y",
        SPRING_CLOUD_STREAM_DYNAMICDESTINATIONS_0="z",
    )
    assert settings.output_bindings == ["a", "b"]
    assert settings.dynamic_destinations == ["z"]
    assert load("spring.cloud.stream.dynamic-destinations=a, b,").dynamic_destinations == ["a", "b"]


def test_absurd_index_is_an_unknown_key():
    """Not a list of that length."""
    assert "unknown setting" in errors_of("spring.cloud.stream.dynamic-destinations[999999999]=x")[0]


def test_keys_of_maps_may_have_dots():
    """In maps of plain values."""
    settings = load(
        "spring.cloud.stream.bindings.input.consumer.retryable-exceptions.java.lang.X=false\n"
        "spring.cloud.stream.bindings.input.consumer.retryable-exceptions[builtins.ValueError]=true"
    )
    assert settings.binding("input").consumer.retryable_exceptions == {
        "java.lang.X": False,
        "builtins.ValueError": True,
    }


@pytest.mark.parametrize("spelling", ["headers", "HEADERS"])
def test_enums_are_relaxed(spelling):
    """A member is found in any spelling."""
    settings = load(f"spring.cloud.stream.bindings.output.producer.header-mode={spelling}")
    assert settings.binding("output").producer.header_mode is HeaderMode.HEADERS


def test_empty_text_unsets_an_optional_setting():
    """An optional setting that is empty is not set."""
    assert load("spring.cloud.stream.bindings.input.group=").binding("input").group is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200", 0.2), ("1.5s", 1.5), ("10s", 10), ("2m", 120), ("PT0.5S", 0.5), (" 1h ", 3600)],
)
def test_durations(text, expected):
    """A number in the setting's unit, or with its own unit."""
    settings = load(f"spring.cloud.stream.default.consumer.back-off-max-interval={text}")
    assert settings.default.consumer.back_off_max_interval == timedelta(seconds=expected)


class Units(SettingsModel):
    milliseconds: Milliseconds = timedelta(0)
    seconds: Seconds = timedelta(0)
    minutes: Minutes = timedelta(0)
    level_table: Annotated[tuple[Seconds, ...], Separator(" ")] = ()


def test_plain_numbers_have_the_settings_unit():
    """Plain numbers count what their setting counts."""
    units = environment("x.milliseconds=5\nx.seconds=5\nx.minutes=5\nx.level-table=1s 5s 1m 7").bind("x", Units)
    assert (units.milliseconds, units.seconds, units.minutes) == (
        timedelta(milliseconds=5),
        timedelta(seconds=5),
        timedelta(minutes=5),
    )
    assert [duration.total_seconds() for duration in units.level_table] == [1, 5, 60, 7]


def test_instance_index_from_the_platform():
    """From INSTANCE_INDEX, else CF_INSTANCE_INDEX, unless it is set."""
    assert load(CF_INSTANCE_INDEX="2").instance_index == 2
    assert load(CF_INSTANCE_INDEX="2", INSTANCE_INDEX="3").instance_index == 3
    assert load("spring.cloud.stream.instance-index=4", INSTANCE_INDEX="3").instance_index == 4


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("bindings.input.consumer.max-atempts", "bindings.input.consumer.max-attempts"),
        ("bindings.input.consumr.maxAttempts", "bindings.input.consumer.max-attempts"),
        ("bindings.input.maxAttempts", "bindings.input.consumer.max-attempts"),
        ("bindings.input.grup", "bindings.input.group"),
        ("bindings.my.orders.group", "bindings[my.orders].group"),
        ("bindings.input.consumer.concurrency.max", "bindings.input.consumer.concurrency"),
        ("instanceCont", "instance-count"),
        ("rocketmqq.binder.name-server", "rocketmq.binder.name-server"),
    ],
)
def test_unknown_key_is_refused_with_a_suggestion(key, suggestion):
    """With file, line and the right key."""
    with pytest.raises(ConfigurationErrors) as caught:
        load(f"\nspring.cloud.stream.{key}=1")
    (error,) = caught.value.errors
    assert isinstance(error, UnknownSetting)
    assert error.origin == "application.properties:2"
    assert error.suggestion == f"spring.cloud.stream.{suggestion}"
    assert str(error) == (
        f"application.properties:2: unknown setting spring.cloud.stream.{key}; "
        f"did you mean spring.cloud.stream.{suggestion}?"
    )


def test_unknown_environment_variable_is_an_error():
    """If it has our prefix."""
    assert errors_of("", SPRING_CLOUD_STREAM_NONSENSE="1") == [
        "environment variable SPRING_CLOUD_STREAM_NONSENSE: unknown setting SPRING_CLOUD_STREAM_NONSENSE"
    ]


def test_group_of_settings_is_no_value():
    """A value there is an error; an empty one is ignored."""
    assert (
        "unknown setting spring.cloud.stream.bindings.input.consumer"
        in errors_of("spring.cloud.stream.bindings.input.consumer=x")[0]
    )
    assert load("spring.cloud.stream.bindings.input.consumer=").bindings["input"].consumer.max_attempts == 3


def test_invalid_value_is_refused_with_the_expected_form():
    """With file, line, key, value and expectation; a wrong default is reported once."""
    assert errors_of(
        "spring.cloud.stream.default.consumer.concurrency=zero\n"
        "spring.cloud.stream.bindings.a.consumer.max-attempts=0\n"
        "spring.cloud.stream.bindings.b.group=g\n"
    ) == [
        f"application.properties:1: {PREFIX}.default.consumer.concurrency=zero: {NO_INTEGER}",
        f"application.properties:2: {PREFIX}.bindings.a.consumer.max-attempts=0: expected {AT_LEAST_1}",
    ]
    assert errors_of("spring.cloud.stream.binding-retry-interval=soon")[0].endswith("or a number of s")


def test_invalid_content_type_is_reported():
    """With its origin and an example."""
    key = "spring.cloud.stream.bindings.input.content-type"
    (error,) = errors_of(f"{key}=nonsense")
    assert error.startswith(f"application.properties:1: {key}=nonsense: 'nonsense' is not a content type: expected")


def test_all_errors_are_in_one_report():
    """Unknown keys, wrong values, broken placeholders and refused settings."""
    errors = errors_of(
        "spring.cloud.stream.x=1\nspring.cloud.stream.instance-count=a\n"
        "spring.cloud.stream.default.group=${nobody}\nspring.cloud.stream.default.consumer.instance-index-list=1"
    )
    assert len(errors) == 4
    with pytest.raises(ConfigurationErrors, match=r"^1 setting is wrong:\n  - application\.properties:1: "):
        load("spring.cloud.stream.x=1")


def test_refused_setting_says_what_to_do():
    """An unsupported setting fails the start unless it has the default value."""
    key = "spring.cloud.stream.bindings.input.consumer.instance-index-list"
    (error,) = errors_of(f"{key}=0,1")
    assert error.startswith(f"application.properties:1: {key}=0,1: not supported: a process has one index here;")
    assert load("spring.cloud.stream.default.consumer.batch-mode=false").default.consumer.batch_mode is False
    assert errors_of("spring.cloud.stream.default.producer.partition-selector-class=x")


def test_setting_without_effect_warns_once(caplog):
    """Once per environment."""
    loaded = environment("spring.cloud.stream.override-cloud-connectors=true")
    with caplog.at_level(logging.WARNING):
        StreamSettings.load(loaded)
        StreamSettings.load(loaded)
    (record,) = caplog.records
    assert record.getMessage() == (
        "application.properties:1: spring.cloud.stream.override-cloud-connectors has no effect: "
        "Cloud Foundry is not supported"
    )
    assert len(loaded.warnings) == 1


class Push(SettingsModel):
    orderly: bool = False


class Consumer(SettingsModel):
    push: Push = Push()
    subscription: str | None = setting(default=None, aliases=("subscription", "tags"))
    use_tls: bool = setting(default=False, aliases=("useTLS",))
    secret_key: str | None = None
    vip: Annotated[bool, Accepted("no such channel")] = False
    trans: Annotated[bool, Rejected("write no transactions")] = False


class Producer(SettingsModel):
    size: int = 1


def test_extended_settings():
    """A binder's settings of a binding come from its defaults and, stronger, from the binding."""
    loaded = environment(
        "spring.cloud.stream.rocketmq.default.consumer.push.orderly=true\n"
        "spring.cloud.stream.rocketmq.default.consumer.tags=a\n"
        "spring.cloud.stream.rocketmq.bindings.input.consumer.subscription=b\n"
        "spring.cloud.stream.rocketmq.bindings.input.consumer.useTls=true\n"
    )
    consumer = loaded.bind_extended("rocketmq", "INPUT", "consumer", Consumer)
    assert (consumer.push.orderly, consumer.subscription, consumer.use_tls) == (True, "b", True)
    assert loaded.bind_extended("rocketmq", "other", "consumer", Consumer).subscription == "a"
    bound = loaded.explain_extended("rocketmq", "input", "consumer", Consumer)
    assert str(bound.origins["push", "orderly"].origin) == "application.properties:1"


def test_settings_of_unused_bindings_are_validated():
    """A typo is an error wherever it is."""
    loaded = environment(
        "spring.cloud.stream.rocketmq.bindings.other.consumer.push.ordely=true\n"
        "spring.cloud.stream.rocketmq.bindings.other.producer.size=big\n"
        "spring.cloud.stream.rocketmq.bindings.other.consumer.trans=true\n"
        "spring.cloud.stream.rocketmq.binder.whatever=1\n"
    )
    problems = extended_problems(loaded, "rocketmq", lambda _: (Consumer, Producer))
    assert [problem.origin for problem in problems] == [
        "application.properties:1",
        "application.properties:2",
        "application.properties:3",
    ]
    assert problems[0].suggestion == "spring.cloud.stream.rocketmq.bindings.other.consumer.push.orderly"
    with pytest.raises(ConfigurationErrors) as caught:
        StreamSettings.load(loaded, ["rocketmq"], lambda _: (Consumer, Producer))
    assert [str(error) for error in caught.value.errors] == [str(problem) for problem in problems]


def test_models_are_loaded_when_needed():
    """Not those of a binder without settings."""

    def unwanted(type_):
        raise AssertionError(type_)

    StreamSettings.load(environment("spring.cloud.stream.default.group=g"), ["rocketmq"], unwanted)


def test_secrets_are_not_shown_in_errors():
    """Errors never print a secret."""

    class Strict(SettingsModel):
        secret_key: Annotated[str | None, Rejected("not signed")] = None
        password: int = 0

    with pytest.raises(ConfigurationErrors) as caught:
        environment("x.secretKey=hush\nx.password=hush2").bind("x", Strict)
    assert "hush" not in str(caught.value)
    assert len(caught.value.errors) == 2


def test_binders():
    """Messaging systems by name, with their own environments."""
    settings = load(
        "spring.cloud.stream.binders.one.type=rocketmq\n"
        "spring.cloud.stream.binders.one.environment.spring.cloud.stream.rocketmq.binder.name-server=a:1\n"
        "spring.cloud.stream.binders.two.default-candidate=false\n"
        "spring.cloud.stream.default-binder=one\n"
    )
    assert settings.binders["one"].environment == {"spring.cloud.stream.rocketmq.binder.name-server": "a:1"}
    assert settings.binders["two"].default_candidate is False
    assert settings.default_binder == "one"


def test_settings_in_code():
    """The model can be created without an environment."""
    assert StreamSettings(instance_count=3).instance_count == 3


def test_missing_required_setting_is_named():
    """With its full key."""

    class Strict(SettingsModel):
        topic_name: str

    with pytest.raises(ConfigurationErrors, match=r"my\.app\.topic-name is not set"):
        environment().bind("my.app", Strict)


def test_a_list_given_as_a_whole_takes_the_place_of_weaker_items():
    """An error in it names its own place."""
    key = "spring.cloud.stream.instance-index-list"
    environment = Environment.load(
        directory=Path("/nowhere"), arguments=[f"--{key}=1,x"], variables={}, defaults={f"{key}[1]": "2"}
    )
    with pytest.raises(ConfigurationErrors) as caught:
        StreamSettings.load(environment)
    assert {error.origin for error in caught.value.errors} == {f"argument --{key}"}


def test_a_list_given_as_a_whole_takes_the_place_of_default_items():
    """Also where two prefixes are merged: those of a binding and those of all bindings."""

    class Codes(SettingsModel):
        codes: list[int] = setting(default_factory=list)

    environment = Environment.load(
        directory=Path("/nowhere"), arguments=[], variables={}, defaults={"own.codes": "1,2", "default.codes[1]": "3"}
    )
    merged = environment.tree("own", Codes).over(environment.tree("default", Codes))
    found = merged.origin_of(("codes", 1))
    assert found is not None
    assert found.key == "own.codes"


def test_a_known_name_is_not_taken_for_a_misspelt_binder_type():
    """The mistake is further on in the key."""
    with pytest.raises(ConfigurationErrors, match=r"did you mean spring\.cloud\.stream\.bindings\.a\.group\?"):
        load("spring.cloud.stream.bindings.a.grup=x", types=("binding",))
