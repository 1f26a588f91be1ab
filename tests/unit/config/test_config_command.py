"""`streamkit config explain` and `streamkit config report`."""

import json

import pytest
from click.testing import CliRunner

from binders.inmemory import plugin as inmemory
from streamkit.cli.config import config
from streamkit.plugins.application_plugins import ApplicationPlugins


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a command in a directory with these application.properties;

    it returns output and exit code.
    """
    monkeypatch.chdir(tmp_path)
    plugins = ApplicationPlugins([inmemory])

    def invoke(properties, *arguments):
        (tmp_path / "application.properties").write_text(properties)
        result = CliRunner(env={"COLUMNS": None}).invoke(config, arguments, obj=plugins)
        return result.output, result.exit_code

    return invoke


INPUT = "spring.cloud.stream.bindings.input"


def test_explain_as_json(run):
    """Each setting has its value and its origin, with --defaults also those that nothing sets."""
    output, code = run(
        f"{INPUT}.group=g\nspring.cloud.stream.default.consumer.concurrency=3\n"
        "spring.cloud.stream.default-binder=inmemory\n"
        "spring.cloud.stream.inmemory.binder.stands-in-for=inmemory\n"
        "spring.cloud.stream.inmemory.bindings.input.consumer.suspend=2s\n",
        *("explain", "INPUT", "--json", "--defaults", f"--{INPUT}.consumer.max-attempts=9"),
    )
    assert code == 0
    rows = {row["setting"]: (row["value"], row["origin"]) for row in json.loads(output)}
    assert rows["destination"] == ("INPUT", "the binding's name")
    assert rows["group"] == ("g", "application.properties:1")
    assert rows["consumer.concurrency"] == ("3", "application.properties:2")
    assert rows["consumer.max-attempts"] == ("9", f"argument --{INPUT}.consumer.max-attempts")
    assert rows["consumer.back-off-max-interval"] == ("10s", "default")
    assert rows["inmemory.consumer.suspend"] == ("2s", "application.properties:5")
    assert "consumer.instance-index-list" not in rows


def test_explain_as_a_table(run):
    """Without --json; a binding without any setting is reported with the nearest name."""
    output, code = run(f"{INPUT}.group=g", "explain", "inputs", "--defaults")
    assert code == 0
    assert "binding inputs" in output
    assert "consumer.concurrency" in output
    assert "Did you mean input?" in output


def test_explaining_shows_what_is_set(run):
    """And says of settings without effect why they have none; defaults are shown when they are asked for."""
    output, code = run(
        "spring.cloud.stream.default-binder=inmemory\n"
        "spring.cloud.stream.bindings.s-out-0.destination=t\n"
        "spring.cloud.stream.bindings.s-out-0.consumer.concurrency=3\n",
        *("explain", "s-out-0", "--json"),
    )
    assert code == 0
    assert {row["setting"]: row["note"] for row in json.loads(output)} == {
        "destination": None,
        "consumer.concurrency": "binding 's-out-0' is an output, which has no group and no consumer",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("report --jsn", "No such option '--jsn'. Did you mean '--json'?"),
        (
            "report . --confg-location=x",
            "No such option '--confg-location'. Did you mean '--config-location'?",
        ),
        ("explain input --jsn", "No such option '--jsn'. Did you mean '--json'?"),
        ("explain --jsn input", "No such option '--jsn'. Did you mean '--json'?"),
        (
            "explain --server.port=1",
            "'--server.port=1' stands where BINDING belongs: write settings after it",
        ),
        ("explain input output", "'output' is not a setting: write settings as --key=value"),
        ("report -j", "'-j' is not a setting: write settings as --key=value"),
        ("report here there", "expected one PATH, not here, there"),
        ("report here --config-location=there", "expected one PATH, not here, there"),
    ],
)
def test_unknown_arguments_are_reported(run, arguments, message):
    """A misspelt option is not taken for a setting."""
    output, code = run(f"{INPUT}.group=g", *arguments.split())
    assert code == 2
    assert f"Error: {message}" in output


def test_explain_reports_wrong_settings(run):
    """Instead of explaining them."""
    output, code = run(f"{INPUT}.grup=g", "explain", "input")
    assert code == 1
    assert f"application.properties:1: unknown setting {INPUT}.grup; did you mean {INPUT}.group?" in output


def test_lines_are_not_folded_in_files_and_pipes(run):
    """Each setting is one line of any length."""
    origin = f"argument --{INPUT}.group"
    output, _ = run("", "explain", "input", f"--{INPUT}.group={'g' * 200}")
    assert any("g" * 200 in line and origin in line for line in output.splitlines())


def test_report_without_problems_succeeds(run):
    """It lists the settings in effect."""
    output, code = run(f"{INPUT}.group=g\nspring.datasource.url=jdbc", "report")
    assert code == 0
    assert output.splitlines()[-1] == "0 wrong, 1 honoured, 1 not ours"
    assert f"{INPUT}.group" in output


def test_report_with_problems_fails(run):
    """It lists errors and settings without effect, each with origin and reason."""
    properties = (
        f"{INPUT}.consumer.partitioned=true\n{INPUT}.grup=g\n"
        "spring.cloud.stream.inmemory.bindings.other.consumer.suspnd=1\n"
        "spring.cloud.stream.inmemory.binder.partitions=none\n"
    )
    output, code = run(properties, "report")
    assert code == 1
    for line in (2, 3, 4):
        assert f"application.properties:{line}" in output
    assert f"did you mean {INPUT}.group?" in output
    assert "shares the partitions among the members of a group by itself" in output
    assert output.splitlines()[-1].startswith("3 wrong, 1 no effect")


def test_report_as_json(run):
    """Secrets are masked in both forms."""
    output, code = run(f"{INPUT}.consumer.partitioned=true\n{INPUT}.grup=g\nmy.password=x\n", "report", "--json")
    report = json.loads(output)
    assert code == 1
    assert report["wrong"][0]["suggestion"] == f"{INPUT}.group"
    assert report["no effect"] == [
        {
            "setting": f"{INPUT}.consumer.partitioned",
            "value": "true",
            "origin": "application.properties:1",
            "why": "the messaging system shares the partitions among the members of a group by itself",
            "suggestion": None,
        }
    ]
    assert report["not ours"][0]["value"] == "******"


def test_report_on_another_place(run, tmp_path):
    """A file or a directory; origins are relative to it, and overridden values name what overrides them."""
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "application.yml").write_text(f"{INPUT}.group: g")
    (tmp_path / "service" / "application.properties").write_text(f"{INPUT}.group=h")
    output, code = run("", "report", "service", "--json")
    report = json.loads(output)
    assert code == 0
    assert [(row["value"], row["origin"]) for row in report["honoured"]] == [("h", "application.properties:1")]
    assert [row["why"] for row in report["overridden"]] == ["by application.properties:1"]
    output, _ = run("", "report", "service/application.yml", "--json")
    assert [row["value"] for row in json.loads(output)["honoured"]] == ["g"]
    output, code = run("", "report", "nowhere")
    assert (code, "there is no file or directory 'nowhere'" in output) == (2, True)


def test_report_covers_the_environment_of_a_binder(run):
    """It is read as the binder reads it."""
    own = "spring.cloud.stream.binders.one.environment.spring.cloud.stream.inmemory.binder"
    properties = f"spring.cloud.stream.binders.one.type=inmemory\n{own}.partitions=2\n{own}.partitoins=2\n"
    output, code = run(properties, "report", "--json")
    assert code == 1
    assert [row["origin"] for row in json.loads(output)["wrong"]] == ["application.properties:3"]


def test_malformed_file_is_an_error_with_its_line(run):
    """A file that cannot be read is an error with its line."""
    for command in (("report",), ("explain", "input")):
        output, code = run("a=\\u00", *command)
        assert code == 1
        assert "Error: application.properties:1: " in output


def test_explain_shows_a_suppliers_polling(run):
    """Values that the binding leaves open come from the global ones; its own cron replaces their delay."""
    output, code = run(
        "spring.integration.poller.fixed-delay=5s\nspring.cloud.stream.poller.max-messages-per-poll=2\n"
        "spring.cloud.stream.default-binder=inmemory\n"
        "spring.cloud.stream.bindings.cron-out-0.producer.poller.cron=0 * * * * *\n",
        *("explain", "cron-out-0", "--json", "--defaults"),
    )
    assert code == 0, output
    rows = {row["setting"]: (row["value"], row["origin"]) for row in json.loads(output)}
    assert rows["producer.poller.cron"] == ("0 * * * * *", "application.properties:4")
    assert rows["producer.poller.fixed-delay"] == ("", "default")
    assert rows["producer.poller.max-messages-per-poll"] == ("2", "application.properties:2")


@pytest.mark.parametrize(
    "key",
    [
        "my.password",
        "my.passwords[0].password[0]",
        "my.configuration[sasl.jaas.config]",
        "my.configuration.sasl.jaas.config",
        "MY_CONFIGURATION_SASL_JAAS_CONFIG",
        "MY_CONFIGURATION_SSL_KEYSTORE_KEY",
        "MY_SECRET_KEY",
    ],
)
def test_secret_is_masked_in_every_spelling_of_its_key(run, key):
    """Dotted, in brackets, with an index, and as an environment variable."""
    output, _ = run(f"{key}=hunter2", "report", "--json")
    assert "hunter2" not in output
    assert "******" in output


def test_secret_with_an_invalid_placeholder_is_masked(run):
    """The error shows the placeholder but not the text around it."""
    output, code = run(
        "spring.cloud.stream.inmemory.binder.password=hunter2${nothing}\n"
        "spring.cloud.stream.bindings.a.group=g-${nothing}",
        *("report", "--json"),
    )
    assert code == 1
    assert "hunter2" not in output
    assert "nothing sets 'nothing'" in output


def test_setting_overridden_by_an_environment_variable_is_reported(run, monkeypatch):
    """It is known, and the report names the variable."""
    monkeypatch.setenv("SPRING_CLOUD_STREAM_BINDINGS_INPUT_GROUP", "mine")
    monkeypatch.setenv("SPRING_CLOUD_STREAM_BINDINGS_MY_IN_DESTINATION", "there")
    monkeypatch.setenv("SPRING_APPLICATION_NAME", "shop")
    output, code = run(
        f"{INPUT}.group=g\nspring.cloud.stream.bindings[my.in].destination=here\nspring.application.name=x\n"
        "somebody.else=1",
        *("report", "--json"),
    )
    report = json.loads(output)
    assert code == 0
    assert {row["setting"]: row["why"] for row in report["overridden"]} == {
        f"{INPUT}.group": "by environment variable SPRING_CLOUD_STREAM_BINDINGS_INPUT_GROUP",
        "spring.cloud.stream.bindings[my.in].destination": (
            "by environment variable SPRING_CLOUD_STREAM_BINDINGS_MY_IN_DESTINATION"
        ),
        "spring.application.name": "by environment variable SPRING_APPLICATION_NAME",
    }
    assert [row["setting"] for row in report["not ours"]] == ["somebody.else"]
