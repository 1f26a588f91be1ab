"""The start of an application and the report judge its settings alike: by the same code, with the same words."""

import asyncio
import json
import sys

import pytest
from click.testing import CliRunner

from streamkit import StreamApplication
from streamkit.cli.config import config
from streamkit.errors import ConfigurationError, ConfigurationErrors

STREAM = "spring.cloud.stream"
CODE = """
from streamkit import StreamApplication
from streamkit.listeners.pollable_source import PollableMessageSource

app = StreamApplication()


@app.stream_listener("in")
def listen(text: str) -> None: ...


@app.function
def upper(text: str) -> str: ...


@app.function
def lower(text: str) -> str: ...
"""
SETTINGS = f"""
{STREAM}.default-binder=inmemory
{STREAM}.bindings.in.destination=orders
{STREAM}.output-bindings=s
spring.cloud.function.definition=upper
"""


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """Returns the report on an application with more settings, and the errors of its start."""

    def judged(more="", *options, variables=()):
        monkeypatch.chdir(tmp_path)
        for name, value in variables:
            monkeypatch.setenv(name, value)
        (tmp_path / "application.properties").write_text(SETTINGS.strip() + "\n" + more)
        (tmp_path / "judged_shop.py").write_text(CODE)
        sys.modules.pop("judged_shop", None)
        monkeypatch.syspath_prepend(str(tmp_path))
        result = CliRunner().invoke(config, ["report", "--app", "judged_shop", "--json", *options])
        report = json.loads(result.output)
        sys.modules.pop("judged_shop", None)
        app: StreamApplication = __import__("judged_shop").app
        try:
            asyncio.run(started(app))
        except ConfigurationErrors as found:
            errors = found.errors
        except ConfigurationError as found:
            errors = (found,)
        else:
            errors = ()
        assert {(row["origin"], row["setting"]) for row in report["wrong"]} == {(e.origin, e.key) for e in errors}
        assert result.exit_code == (1 if errors or ("--strict" in options and unused(report)) else 0)
        warned = {(str(each.value.origin), each.value.key) for each in app.environment.warnings.values()}
        assert errors or {(row["origin"], row["setting"]) for row in unused(report)} == warned
        return report, errors

    return judged


async def started(app):
    async with app:
        pass


def unused(report):
    return [row for verdict in ("names nothing", "another binder's", "no effect") for row in report[verdict]]


def test_valid_settings_are_reported_as_honoured(judge):
    """Everything is honoured, and the application starts."""
    report, errors = judge("")
    assert (errors, unused(report)) == ((), [])
    assert len(report["honoured"]) == 4


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (f"{STREAM}.default-binder=nosuch", "there is no binder 'nosuch'"),
        (
            f"{STREAM}.bindings.in.consumer.retryable-exceptions.java.lang.IllegalStateException=true",
            "is not an exception class",
        ),
        (f"{STREAM}.bindings.s.producer.partition-key-expression=payload.getId(", "getId"),
        ("spring.cloud.function.definition=upper|;", "has no name of a function"),
        (f"{STREAM}.rocketmq.bindings.inn.consumer.orderly=true", "there is no binding 'inn'; did you mean 'in'?"),
        (
            f"{STREAM}.rocketmq.bindings.ghost.consumer.orderly=true",
            "there is no binding 'ghost'. Bindings: in, s",
        ),
        (f"{STREAM}.bindings.upper-in-O.group=g", "there is no binding 'upper-in-O'; did you mean 'upper-in-0'?"),
        (
            f"{STREAM}.function.bindings.uper-in-0=x",
            "a binding 'uper-in-0'; did you mean 'upper-in-0'?",
        ),
        ("spring.cloud.straem.bindings.in.group=g", f"did you mean {STREAM}.bindings.in.group?"),
        ("spring.clud.function.definition=upper", "did you mean spring.cloud.function.definition?"),
        ("management.server.prot=0", "did you mean management.server.port?"),
        ("management.endpoint.helth.enabled=true", "did you mean management.endpoint.health.enabled?"),
        (f"{STREAM}.rocketmq.binder.name-server=nowhere", "'nowhere' is not an address"),
    ],
)
def test_settings_that_the_start_refuses_are_reported_as_wrong(judge, setting, reason):
    """With its file and line."""
    report, errors = judge(setting)
    [row] = report["wrong"]
    assert reason in row["why"]
    assert reason in str(errors[0])
    assert row["origin"] == "application.properties:5"


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("SPRING_CLOUD_STRAEM_BINDINGS_IN_GROUP", "SPRING_CLOUD_STREAM_BINDINGS_IN_GROUP"),
        ("SPRING_CLOUD_STREAM_BINDNGS_IN_GROUP", "SPRING_CLOUD_STREAM_BINDINGS_IN_GROUP"),
        ("SPRING_CLOUD_STREAM_BINDINGS_IN_GRUOP", "SPRING_CLOUD_STREAM_BINDINGS_IN_GROUP"),
        ("SPRING_CLOUD_STREAM_DEFAULT_BINDR", "SPRING_CLOUD_STREAM_DEFAULT_BINDER"),
        ("SPRING_CLOUD_STREAM_BINDINGS_INN_GROUP", f"{STREAM}.bindings.in.group"),
        ("SPRING_CLOUD_FUNCTION_DEFINITON", "SPRING_CLOUD_FUNCTION_DEFINITION"),
        ("MANAGEMENT_SERVER_PROT", "MANAGEMENT_SERVER_PORT"),
    ],
)
def test_misspelt_environment_variables_are_reported_as_wrong(judge, name, suggestion):
    """The variable is named, and so is the one that is meant."""
    report, errors = judge("", variables=[(name, "0")])
    [row] = report["wrong"]
    assert (row["origin"], row["suggestion"]) == (f"environment variable {name}", suggestion)
    assert errors[0].suggestion == suggestion


def test_environment_variables_of_other_programs_are_not_reported(judge):
    """However similar their names are."""
    report, errors = judge("", variables=[("MANAGEMENT_PORT", "1"), ("SPRING_CLOUD_TASK_NAME", "x"), ("MANAGER", "x")])
    assert (errors, report["wrong"], unused(report)) == ((), [], [])


@pytest.mark.parametrize(
    ("setting", "verdict", "reason"),
    [
        (f"{STREAM}.bindings.s.consumer.concurrency=3", "no effect", "binding 's' is an output"),
        (f"{STREAM}.bindings.s.group=g", "no effect", "binding 's' is an output"),
        (
            f"{STREAM}.bindings.in.producer.required-groups=g",
            "no effect",
            "is an input",
        ),
        (f"{STREAM}.rocketmq.bindings.s.consumer.orderly=true", "no effect", "binding 's' is an output"),
        (f"{STREAM}.bindings.ghost.consumer.concurrency=3", "names nothing", "list it in"),
        (f"{STREAM}.bindings.lower-in-0.destination=t", "names nothing", "list it in"),
        (f"{STREAM}.function.bindings.lower-in-0=t", "names nothing", "no definition binds the function"),
        (f"{STREAM}.kafka.bindings.in.consumer.batch-size=5", "another binder's", "of type 'rocketmq'"),
        (f"{STREAM}.kafka.default.consumer.batch-size=5", "another binder's", "of type 'rocketmq'"),
        (f"{STREAM}.kafka.binder.brokers=nowhere", "another binder's", "no binding is on a binder of type 'kafka'"),
        (f"{STREAM}.instance-count=3", "no effect", "however many there are"),
        (f"{STREAM}.bindings.in.consumer.instance-count=3", "no effect", "however many there are"),
        (f"{STREAM}.bindings.s.producer.partition-count=8", "no effect", "partitions decides"),
        (
            f"{STREAM}.bindings.s.producer.partition-selector-expression=length()",
            "no effect",
            "there is no partition key",
        ),
        (f"{STREAM}.bindings.s.producer.poller.fixed-delay=5", "no effect", "no function is polled"),
        (f"{STREAM}.bindings.in.consumer.header-mode=none", "no effect", "always read"),
        (f"{STREAM}.bindings.in.consumer.multiplex=true", "no effect", "one destination"),
    ],
)
def test_settings_without_effect_are_not_reported_as_honoured(judge, setting, verdict, reason):
    """The report says why, and the start logs it; a guard can ask for a failure."""
    report, errors = judge(setting, "--strict")
    [row] = report[verdict]
    assert (errors, row["setting"]) == ((), setting.partition("=")[0])
    assert reason in row["why"]


def test_bindings_of_functions_and_sources_can_be_renamed(judge):
    """By the names that they have without the setting."""
    report, errors = judge(
        f"{STREAM}.source=a\n{STREAM}.function.bindings.a-out-0=there\n{STREAM}.function.bindings.upper-in-0=here\n"
    )
    assert (errors, unused(report)) == ((), [])


def test_output_of_the_routing_function_is_a_binding(judge):
    """It is made when the first function returns something."""
    report, errors = judge(
        f"{STREAM}.function.routing.enabled=true\n{STREAM}.function.bindings.functionRouter-out-0=routed\n"
        f"{STREAM}.bindings.routed.destination=there\n"
    )
    assert (errors, unused(report)) == ((), [])


def test_dynamic_destination_is_a_binding(judge):
    """The settings list the names to which the application may send."""
    report, errors = judge(
        f"{STREAM}.dynamic-destinations=later\n{STREAM}.bindings.later.destination=there\n"
        f"{STREAM}.rocketmq.bindings.later.producer.sync=false\n"
    )
    assert (errors, unused(report)) == ((), [])


def test_kafka_properties_without_effect_are_reported(judge):
    """Each with its own line; the properties beside them are honoured."""
    properties = f"{STREAM}.kafka.bindings.in.consumer.configuration"
    report, _ = judge(
        f"{STREAM}.bindings.in.binder=kafka\n{STREAM}.binding-retry-interval=30\n"
        f"{properties}.max.poll.records=5\n{properties}.key.deserializer=x\n"
        f"{STREAM}.kafka.binder.configuration.value.serializer=x\n{STREAM}.kafka.binder.brokers=127.0.0.1:1\n"
    )
    assert {(row["setting"], row["origin"]) for row in report["no effect"]} == {
        (f"{properties}.key.deserializer", "application.properties:8"),
        (f"{STREAM}.kafka.binder.configuration.value.serializer", "application.properties:9"),
    }


@pytest.mark.parametrize("setting", ["zkNodes=z", "zk-session-timeout=5", "defaultZkPort=1", "socketBufferSize=5"])
def test_settings_of_old_kafka_binders_have_no_effect(judge, setting):
    """Spring's binder has dropped them."""
    report, _ = judge(f"{STREAM}.bindings.in.binder=kafka\n{STREAM}.kafka.binder.{setting}\n")
    [row] = report["no effect"]
    assert row["setting"] == f"{STREAM}.kafka.binder.{setting.partition('=')[0]}"


def test_key_that_a_file_sets_twice_is_reported(tmp_path):
    """In any spelling, with the line that counts."""
    (tmp_path / "application.properties").write_text(
        f"{STREAM}.default-binder=kafka\n{STREAM}.defaultBinder=inmemory\n{STREAM}.bindings.a-in-0.group=g\n"
    )
    result = CliRunner().invoke(config, ["report", "--json", "--strict", str(tmp_path)])
    report = json.loads(result.output)
    assert [(row["origin"], row["why"]) for row in report["overridden"]] == [
        ("application.properties:1", "application.properties:2 sets it again")
    ]
    assert result.exit_code == 0


def test_application_without_bindings_may_share_the_settings_of_another(tmp_path):
    """It sends by name, so its settings are read when a name is first used."""
    (tmp_path / "application.properties").write_text(f"{STREAM}.bindings.orders.destination=orders\n")
    app = StreamApplication(config_location=str(tmp_path), properties={f"{STREAM}.default-binder": "inmemory"})
    asyncio.run(started(app))
    assert app.environment.warnings == {}


def test_shared_settings_count_if_any_binding_honours_them(judge):
    """A default is for inputs and outputs alike."""
    report, _ = judge(f"{STREAM}.default.consumer.concurrency=2\n{STREAM}.default.group=g\n")
    assert unused(report) == []


def test_report_continues_after_a_wrong_setting(judge, tmp_path):
    """A report lists everything: wrong settings are left out of the rehearsal of the start."""
    (tmp_path / "application.properties").write_text(
        f"{STREAM}.default-binder=inmemory\n{STREAM}.bindings.in-in-0.grup=g\n"
        f"{STREAM}.bindings.out-out-0.consumer.concurrency=2\n"
        f"{STREAM}.bindings.out-out-0.producer.partition-key-expression=payload.(\n"
    )
    result = CliRunner().invoke(config, ["report", "--json", str(tmp_path)])
    report = json.loads(result.output)
    assert [row["origin"][-1] for row in report["wrong"]] == ["2", "4"]


def test_report_without_code_accepts_unknown_names(tmp_path):
    """Only names that are nearly others are wrong then."""
    (tmp_path / "application.properties").write_text(
        f"{STREAM}.default-binder=rocketmq\n{STREAM}.bindings.orders.group=g\n{STREAM}.bindings.other.group=h\n"
        f"{STREAM}.rocketmq.bindings.ordres.consumer.orderly=true\n"
        f"{STREAM}.rocketmq.bindings.ledger.consumer.orderly=true\n"
        f"{STREAM}.bindings.orders.consumer.retry-template-name=in-the-code\n"
    )
    report = json.loads(CliRunner().invoke(config, ["report", "--json", str(tmp_path)]).output)
    assert [row["suggestion"] for row in report["wrong"]] == [f"{STREAM}.rocketmq.bindings.orders.consumer.orderly"]
    assert unused(report) == []
