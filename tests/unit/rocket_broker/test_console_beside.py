"""Where the console of `streamkit broker --console` listens, and with which arguments it is started."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rocket_broker.errors import BrokerError
from rocket_broker.process.cli import broker
from rocket_broker.process.console_beside import ConsolePlace, console_command
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of


def command(name_servers: str = "h:9876", **keys: str) -> list[str]:
    """Return the arguments of the console of a broker with these settings."""
    settings = BrokerSettings.from_entries(entries_of(keys, "broker.conf:1"))
    return list(console_command(ConsolePlace("127.0.0.1", 8090), name_servers, settings))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("8090", ConsolePlace("127.0.0.1", 8090)),
        ("0", ConsolePlace("127.0.0.1", 0)),
        ("0.0.0.0:80", ConsolePlace("0.0.0.0", 80)),
        ("[::1]:80", ConsolePlace("::1", 80)),
    ],
)
def test_a_place_is_a_port_or_an_address(text: str, place: ConsolePlace) -> None:
    assert ConsolePlace.parse(text) == place


@pytest.mark.parametrize("text", ["list", "65536", "h:-1", "h:", ":80", ""])
def test_other_texts_are_no_place(text: str) -> None:
    """The error says how to write one; nothing is started."""
    done = CliRunner().invoke(broker, [f"--console={text}"])
    assert done.exit_code == 2
    assert "write PORT or ADDRESS:PORT" in done.output


def test_the_console_gets_the_name_servers_and_the_encryption() -> None:
    assert command()[2:] == ["console", "--name-server", "h:9876", "--address", "127.0.0.1", "--port", "8090"]
    assert command(useTLS="true")[-1] == "--tls"


def test_the_console_reads_the_brokers_file_of_tls(tmp_path: Path) -> None:
    """Settings of TLS that are in another file are refused: the console would not have them."""
    file = tmp_path / "tls.properties"
    file.write_text("tls.client.authServer=false\n")
    assert command(useTLS="true", **{"tls.config.file": str(file)})[-3:] == ["--tls", "--tls-config", str(file)]
    with pytest.raises(BrokerError, match=r"broker\.conf:1.*write it into the file of tls\.config\.file"):
        command(useTLS="true", **{"tls.client.authServer": "false"})


def test_a_console_needs_a_name_server() -> None:
    with pytest.raises(BrokerError, match="--console needs a name server"):
        command("")
