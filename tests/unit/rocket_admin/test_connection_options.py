"""The options that say which cluster a command asks, and with which keys it signs."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rocket_admin.commands.connection_options import MAX_TOOLS_FILE, ClusterConnection, connection_options
from rocket_client import Admin, ClientTls

PROPERTIES = """
spring.cloud.stream.bindings.orders.group=kitchen
spring.cloud.stream.rocketmq.binder.name-server=10.0.0.1:9876
"""
YAML = """
rocketmq:
  name-server:
    - 10.0.0.3:9876
    - 10.0.0.4:9876
"""


@click.command()
@connection_options
def command(*, cluster: ClusterConnection) -> None:
    """Print the keys, and the name servers of the admin."""

    async def show(admin: Admin) -> None:
        keys = admin.settings.credentials
        click.echo("none" if keys is None else f"{keys.access_key} {keys.secret_key}")
        click.echo(repr(admin.settings.tls))
        click.echo(admin.settings.name_servers_text)

    cluster.run(show)


def run(*arguments: str, **variables: str | None) -> Result:
    """Run the command with these variables and no others of its own."""
    own = dict.fromkeys(("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "ROCKETMQ_HOME", "NAMESRV_ADDR"))
    return CliRunner().invoke(command, arguments, env=own | variables)


def keys(*arguments: str, **variables: str | None) -> str:
    """Return the keys that the command prints."""
    return run(*arguments, "--name-server", "127.0.0.1:1", **variables).output.splitlines()[0]


def name_servers(*arguments: str, **variables: str | None) -> str:
    """Return the name servers that the command prints."""
    return run(*arguments, **variables).output.splitlines()[-1]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return an installation whose `tools.yml` has an account, as Apache's distribution writes it."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: filed\nsecretKey: 12345678\n")
    return tmp_path


def test_first_place_that_has_a_key_gives_both(home: Path) -> None:
    """The command line, the environment, the file of the installation."""
    options = ("--access-key", "me", "--secret-key", "hush")
    variables = {"ROCKETMQ_ACCESS_KEY": "set", "ROCKETMQ_SECRET_KEY": "hush"}
    assert keys() == "none"
    assert keys(ROCKETMQ_HOME=str(home)) == "filed 12345678"
    assert keys(ROCKETMQ_HOME=str(home), **variables) == "set hush"
    assert keys(*options, ROCKETMQ_HOME=str(home), **variables) == "me hush"
    assert keys("--tools-file", str(home / "conf" / "tools.yml"), **variables) == "filed 12345678"
    assert keys(ROCKETMQ_HOME=str(home / "empty")) == "none"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accessKey: me\n", "must have accessKey and secretKey"),
        ("- secretKey: hush\n", "must have accessKey and secretKey"),
        ("accessKey: me\nsecretKey: {hush\n", "tools.yml:3 is not YAML"),
        ("accessKey: me\nsecretKey: hush\n" + "#" * MAX_TOOLS_FILE, f"more than {MAX_TOOLS_FILE} bytes"),
        ("accessKey: me\nsecretKey: &hush [*hush]\n", "tools.yml:2: an alias stands for a value that contains it"),
        ("accessKey:\n  " + "[" * 999, "tools.yml:2: lists and mappings have more than 100 levels here"),
        (None, "cannot be read"),
    ],
)
def test_file_without_keys_is_an_error(tmp_path: Path, text: str | None, says: str) -> None:
    """It names the file and the line, and shows no secret."""
    path = tmp_path / "tools.yml"
    if text is not None:
        path.write_text(text)
    done = run("--tools-file", str(path))
    assert done.exit_code == 1
    assert says in done.output
    assert "hush" not in done.output


def test_one_key_alone_is_an_error() -> None:
    """On the command line and in the environment."""
    assert "--access-key and --secret-key belong together" in run("--access-key", "me").output
    done = run(ROCKETMQ_SECRET_KEY="hush")
    assert "ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY belong together" in done.output
    assert "hush" not in done.output


def test_name_server_is_given_found_or_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, the environment, the settings of the current directory, the default."""
    monkeypatch.chdir(tmp_path)
    assert name_servers() == "127.0.0.1:9876"
    (tmp_path / "application.yml").write_text(YAML)
    assert name_servers() == "10.0.0.3:9876, 10.0.0.4:9876"
    (tmp_path / "application.properties").write_text(PROPERTIES)
    assert name_servers() == "10.0.0.1:9876"
    assert name_servers(NAMESRV_ADDR="10.0.0.5:9876") == "10.0.0.5:9876"
    assert name_servers("-n", "10.0.0.6:9876", NAMESRV_ADDR="10.0.0.5:9876") == "10.0.0.6:9876"


def test_error_says_where_a_malformed_address_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable, or the file and line of a setting; settings that cannot be read are an error too."""
    monkeypatch.chdir(tmp_path)
    assert "'tea' is not host:port (the name server is from NAMESRV_ADDR)" in run(NAMESRV_ADDR="tea").output
    (tmp_path / "application.properties").write_text(PROPERTIES.replace("10.0.0.1:9876", "tea"))
    assert "application.properties:3)" in run().output
    (tmp_path / "application.yml").write_text("rocketmq: {")
    done = run()
    assert "the settings of the application in this directory cannot be read" in done.output
    assert "Give --name-server" in done.output


BINDER = "spring.cloud.stream.rocketmq.binder"
SECURED = f"""{PROPERTIES}
{BINDER}.access-key=waiter
{BINDER}.secret-key=hush
{BINDER}.useTLS=true
{BINDER}.tls.auth-server=false
{BINDER}.tls.check-host-name=false
"""


def test_application_gives_keys_and_encryption_with_its_name_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given on the command line wins; another cluster gets neither."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "application.properties").write_text(SECURED)
    keys_, tls, _ = run().output.splitlines()
    assert keys_ == "waiter hush"
    assert tls == repr(ClientTls(verify=False, check_host_name=False))
    assert run("--access-key", "me", "--secret-key", "mine").output.splitlines()[:2] == ["me mine", tls]
    assert run("--tls").output.splitlines()[1] == repr(ClientTls())
    assert run("--name-server", "127.0.0.1:1").output.splitlines()[:2] == ["none", "None"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (f"{BINDER}.access-key=waiter", f"set {BINDER}.secret-key, too"),
        ("rocketmq.producer.secret-key=hush", f"set {BINDER}.access-key, too"),
        (f"{BINDER}.use-tls=maybe", "application.properties:4 is 'maybe': expected true or false"),
        (f"{BINDER}.use-tls=true\n{BINDER}.tls.config-file=none.properties", "none.properties"),
        (f"{BINDER}.use-tls=true\n{BINDER}.tls.trust-cert-path=none.pem", "none.pem"),
        (f"{BINDER}.use-tls=true\n{BINDER}.tls.key-path=key.pem", "needs a certificate"),
    ],
)
def test_wrong_settings_of_the_application_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, says: str
) -> None:
    """They name the setting, and no secret."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "application.properties").write_text(f"{PROPERTIES}{lines}\n")
    done = run()
    assert done.exit_code == 1
    assert says in done.output
    assert "hush" not in done.output
