"""docs/operations.md: settings that can be changed while running, and the output of `streamkit store`."""

import inspect
import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.apache_settings import ApacheSettings
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.repair import RepairPlan
from rocket_broker.store.survey import Survey
from streamkit.cli.load.verdict import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.parametrize(
    ("server", "settings"), [("the broker", BrokerSettings), ("the name server", NameServerSettings)]
)
def test_changeable_settings_are_listed(server: str, settings: type[ApacheSettings]) -> None:
    """All of them, and no others."""
    (row,) = re.findall(rf"^\| {server} \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == settings.changeable()


def test_settings_that_only_the_file_changes_are_listed() -> None:
    """All of them, and no others; a running name server has none."""
    (row,) = re.findall(r"^\| nothing, by requests: [^|]* \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == BrokerSettings.local()
    assert NameServerSettings.local() == []


def with_true(unit: str) -> str:
    """Return a unit with a command that exists on this machine."""
    return re.sub(r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", unit, flags=re.MULTILINE)


@pytest.mark.parametrize("drop_in", ["", "processes.conf"])
def test_systemd_accepts_the_brokers_unit(tmp_path: Path, drop_in: str) -> None:
    """Every line, with and without several processes; and no created file is open to others."""
    text = (PAGE.parent / "systemd" / "streamkit-broker.service").read_text()
    assert "\nUMask=0077\n" in text
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("there is no systemd to ask")
    unit = tmp_path / "streamkit-broker.service"
    unit.write_text(with_true(text))
    if drop_in:
        directory = tmp_path / f"{unit.name}.d"
        directory.mkdir()
        (directory / drop_in).write_text(with_true((PAGE.parent / "systemd" / directory.name / drop_in).read_text()))
    verified = subprocess.run([systemd, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("message", [Survey, RepairPlan])
def test_output_fields_of_the_store_commands_are_listed(message: type[Survey | RepairPlan]) -> None:
    """Each JSON field has a row with the class's text."""
    _, _, attributes = (inspect.getdoc(message) or "").partition("Attributes:\n")
    documented = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", attributes, re.MULTILINE)
    assert [name for name, _ in documented] == [field.name for field in fields(message)]
    rows = [f"| `{name}` | {' '.join(line.strip() for line in text.splitlines())} |" for name, text in documented]
    assert "\n".join(rows) in PAGE.read_text()


def test_keys_of_a_loads_verdict_are_on_the_page() -> None:
    section = PAGE.read_text().partition("## Measure a messaging system")[2].partition("\n## ")[0]
    keys = " ".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", keys)) == {field.name for field in fields(Verdict)} | {"complaints"}
