"""The options with which commands sign their requests."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from binders.rocket.account_options import MAX_TOOLS_FILE, account_options
from rocket_client import Credentials


@click.command()
@account_options
def command(*, credentials: Credentials | None) -> None:
    """Print the keys."""
    click.echo("none" if credentials is None else f"{credentials.access_key} {credentials.secret_key}")


def run(*arguments: str, **variables: str | None) -> Result:
    """Run the command with these variables and no others of its own."""
    own = dict.fromkeys(("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "ROCKETMQ_HOME"))
    return CliRunner().invoke(command, arguments, env=own | variables)


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
    assert run().output == "none\n"
    assert run(ROCKETMQ_HOME=str(home)).output == "filed 12345678\n"
    assert run(ROCKETMQ_HOME=str(home), **variables).output == "set hush\n"
    assert run(*options, ROCKETMQ_HOME=str(home), **variables).output == "me hush\n"
    assert run("--tools-file", str(home / "conf" / "tools.yml"), **variables).output == "filed 12345678\n"
    assert run(ROCKETMQ_HOME=str(home / "empty")).output == "none\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accessKey: me\n", "must have accessKey and secretKey"),
        ("- secretKey: hush\n", "must have accessKey and secretKey"),
        ("accessKey: me\nsecretKey: {hush\n", "tools.yml:3 is not YAML"),
        ("accessKey: me\nsecretKey: hush\n" + "#" * MAX_TOOLS_FILE, f"more than {MAX_TOOLS_FILE} bytes"),
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
