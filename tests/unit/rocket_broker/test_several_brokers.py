"""The settings of several brokers of one command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocket_broker.errors import BrokerError
from rocket_broker.process.cli import broker
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.settings.several_brokers import check_several, settings_of_number, stores_without_broker


def settings(**keys: str) -> BrokerSettings:
    """Return the settings that all brokers share."""
    return BrokerSettings.from_entries(entries_of({"brokerName": "broker-a", **keys}, "broker.conf:1"))


def run(*arguments: str, **variables: str) -> tuple[int, str]:
    """Run the command; return its exit code and output."""
    done = CliRunner().invoke(broker, arguments, env={"NAMESRV_ADDR": None, "ROCKETMQ_HOME": None, **variables})
    return done.exit_code, done.output


def test_brokers_differ_in_name_ports_and_directories() -> None:
    """Each has ten ports, for the ports that Apache's brokers derive from listenPort."""
    common = settings(
        listenPort="20000",
        haListenPort="20001",
        storePathRootDir="/data",
        storePathCommitLog="/log",
        auditLogPath="/var/audit.log",
    )
    assert settings_of_number(common, 2) == {
        "brokerName": "broker-a-2",
        "listenPort": "20020",
        "haListenPort": "20021",
        "storePathRootDir": "/data/broker-a-2",
        "storePathCommitLog": "/log/broker-a-2",
        "auditLogPath": "/var/broker-a-2-audit.log",
    }


def test_settings_that_are_derived_stay_derived() -> None:
    own = settings_of_number(settings(storePathRootDir="/data"), 0)
    assert own == {"brokerName": "broker-a-0", "listenPort": "10911", "storePathRootDir": "/data/broker-a-0"}


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (
            {"listenPort": "0"},
            "broker.conf:1: listenPort=0: with --processes, a killed broker comes back at the same port",
        ),
        (
            {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": "h:1"},
            "broker.conf:1: brokerRole=SLAVE: with --processes, brokers are masters; start each slave",
        ),
    ],
)
def test_unsuitable_settings_are_refused(keys: dict[str, str], error: str) -> None:
    with pytest.raises(BrokerError) as raised:
        check_several(settings(**keys))
    assert str(raised.value).startswith(error)


def test_store_of_a_single_broker_is_not_passed_over(tmp_path: Path) -> None:
    """Its messages would be served by no broker."""
    (tmp_path / "config").mkdir()
    code, output = run("--store", str(tmp_path), "--processes", "2")
    assert code == 1
    assert f"move its content to {tmp_path}/broker-a-0, or choose another directory" in output


def test_stores_of_more_processes_are_found(tmp_path: Path) -> None:
    for name in ("broker-a-0", "broker-a-1", "broker-a-2", "broker-a-10", "broker-a-b", "broker-b-3"):
        (tmp_path / name / "config").mkdir(parents=True)
    (tmp_path / "broker-a-3").mkdir()
    found = stores_without_broker(settings(storePathRootDir=str(tmp_path)), 2)
    assert {path.name for path in found} == {"broker-a-2", "broker-a-10"}


def test_settings_of_all_brokers_are_printed() -> None:
    """With the origin of what differs; nothing is started."""
    code, output = run("-p", "20000", "--processes", "2", "--print-config", "--json")
    assert code == 0
    printed = json.loads(output)
    rows = {name: {row["key"]: (row["value"], row["origin"]) for row in rows} for name, rows in printed.items()}
    assert rows["broker-a-1"]["listenPort"] == ("20010", "option --processes")
    assert rows["broker-a-1"]["storePathRootDir"] == (".streamkit/broker-a-1", "option --processes")
    assert list(rows) == ["broker-a-0", "broker-a-1"]
    code, output = run("-p", "20000", "--processes", "2", "--print-config")
    assert code == 0
    assert "# broker-a-1\n" in output


def test_name_server_port_needs_a_name_server_of_the_command() -> None:
    """The error says what names the other one."""
    code, output = run("--processes", "2", "--name-server-port", "9", NAMESRV_ADDR="10.0.0.1:9876")
    assert code == 2
    assert "10.0.0.1:9876 is named by environment variable NAMESRV_ADDR" in output


def test_empty_variable_names_no_name_server() -> None:
    """As an empty $NAMESRV_ADDR names none for the other commands."""
    code, output = run("--processes", "2", "--name-server-port", "9", "--print-config", NAMESRV_ADDR="")
    assert code == 0
    assert "environment variable NAMESRV_ADDR" not in output


def test_access_control_needs_a_name_server_of_its_own(tmp_path: Path) -> None:
    """One that checks registrations; the command starts none that does."""
    (tmp_path / "broker.conf").write_text("aclEnable=true\n")
    code, output = run("-c", str(tmp_path / "broker.conf"), "--processes", "2")
    assert code == 1
    assert (
        f"{tmp_path}/broker.conf:1: aclEnable=true: the name server that --processes starts checks no requests"
        in output
    )
