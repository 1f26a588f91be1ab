"""`streamkit config explain` and `streamkit config report`."""

import json

import pytest
from click.testing import CliRunner

from binders.inmemory import plugin as inmemory
from streamkit.binder.registry import BinderTypes
from streamkit.cli.config import config


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in a directory with these application.properties; its output and exit code."""
    monkeypatch.chdir(tmp_path)
    types = BinderTypes({"inmemory": inmemory})

    def invoke(properties, *arguments):
        (tmp_path / "application.properties").write_text(properties)
        result = CliRunner(env={"COLUMNS": "140"}).invoke(config, arguments, obj=types)
        return result.output, result.exit_code

    return invoke


INPUT = "spring.cloud.stream.bindings.input"


def test_explaining_as_json(run):
    """Each setting comes with its value and the place it was set, defaults and the binder's own included."""
    output, code = run(
        f"{INPUT}.group=g\nspring.cloud.stream.default.consumer.concurrency=3\n"
        "spring.cloud.stream.default-binder=inmemory\n"
        "spring.cloud.stream.inmemory.bindings.input.consumer.suspend=2s\n",
        *("explain", "INPUT", "--json", f"--{INPUT}.consumer.max-attempts=9"),
    )
    assert code == 0
    rows = {row["setting"]: (row["value"], row["origin"]) for row in json.loads(output)}
    assert rows["destination"] == ("INPUT", "the binding's name")
    assert rows["group"] == ("g", "application.properties:1")
    assert rows["consumer.concurrency"] == ("3", "application.properties:2")
    assert rows["consumer.max-attempts"] == ("9", f"argument --{INPUT}.consumer.max-attempts")
    assert rows["consumer.back-off-max-interval"] == ("10s", "default")
    assert rows["inmemory.consumer.suspend"] == ("2s", "application.properties:4")
    assert "consumer.instance-index-list" not in rows


def test_explaining_as_a_table(run):
    """Without --json it is a table; a binding nothing mentions is said to be one, with the nearest name."""
    output, code = run(f"{INPUT}.group=g", "explain", "inputs")
    assert code == 0
    assert "binding inputs" in output
    assert "consumer.concurrency" in output
    assert "Did you mean input?" in output


def test_explaining_wrong_settings(run):
    """Settings that are wrong are told instead."""
    output, code = run(f"{INPUT}.grup=g", "explain", "input")
    assert code == 1
    assert f"application.properties:1: unknown setting {INPUT}.grup; did you mean {INPUT}.group?" in output


def test_a_clean_report(run):
    """Where all is well the report says so."""
    assert run(f"{INPUT}.group=g", "report") == ("Every setting is known and has an effect.\n", 0)


def test_a_report(run):
    """The report lists what is wrong and what has no effect, and fails when something is wrong."""
    properties = (
        f"{INPUT}.consumer.multiplex=true\n{INPUT}.grup=g\n"
        "spring.cloud.stream.inmemory.bindings.other.consumer.suspnd=1\n"
    )
    output, code = run(properties, "report")
    assert code == 1
    assert "wrong      application.properties:2: unknown setting" in output
    assert "wrong      application.properties:3: unknown setting" in output
    output, code = run(f"{INPUT}.consumer.multiplex=true\n", "report")
    assert code == 0
    assert output == (
        f"no effect  application.properties:1: {INPUT}.consumer.multiplex: "
        "whether a list of destinations is one consumer is its binder's choice\n"
    )


def test_a_report_as_json(run):
    """With --json the report can be read by programs."""
    output, code = run(f"{INPUT}.consumer.multiplex=true\n{INPUT}.grup=g\n", "report", "--json")
    report = json.loads(output)
    assert code == 1
    assert report["wrong"][0]["suggestion"] == f"{INPUT}.group"
    assert report["no_effect"] == [
        {
            "setting": f"{INPUT}.consumer.multiplex",
            "origin": "application.properties:1",
            "text": "whether a list of destinations is one consumer is its binder's choice",
        }
    ]


def test_a_malformed_file(run):
    """A file that cannot be read is an error with its line."""
    for command in (("report",), ("explain", "input")):
        output, code = run("a=\\u00", *command)
        assert code == 1
        assert "Error: application.properties:1: " in output
