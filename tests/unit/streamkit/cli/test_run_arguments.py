"""`streamkit run`: invalid arguments are reported before anything is imported. And log levels."""

import logging
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamkit.application import StreamApplication
from streamkit.cli.run import run
from streamkit.cli.terminal_log import log_in_format_of_settings
from streamkit.log_format import JsonFormatter


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("shop:app --log-lvl debug", "No such option '--log-lvl'. Did you mean '--log-level'?"),
        ("shop:app --workrs=4", "No such option '--workrs'. Did you mean '--workers'?"),
        ("--workrs 4 shop:app", "No such option '--workrs'. Did you mean '--workers'?"),
        ("shop:app --worker 4", "No such option '--worker'. Did you mean '--workers'?"),
        ("shop:app port=1", "'port=1' is not a setting: write settings as --key=value"),
        ("--server.port=1 shop:app", "'shop:app' is not a setting: write settings as --key=value"),
        ("--server.port=1", "'--server.port=1' stands where MODULE belongs: write settings after it"),
        ("shop.py", "'shop.py' is a path; name the module: shop"),
        ("./shop/app.py:app", "'./shop/app.py' is a path; name the module: shop.app:app"),
        ("/opt/shop.py", "'/opt/shop.py' is a path; name the module: --app-dir /opt shop"),
        ("../shop.py:app", "'../shop.py' is a path; name the module: --app-dir .. shop:app"),
        (
            "shop:app --loglevel=debug --worker.id=3",
            "No such option '--loglevel'. Did you mean '--log-level'?",
        ),
        ("shop:app --name-server 127.0.0.1:9876", "No such option '--name-server'"),
        ("-w 4 shop:app", "'-w' is not a setting: write settings as --key=value"),
        ("no_such_shop", "there is no module 'no_such_shop' in this directory or on the path"),
        ("workers", "there is no module 'workers' in this directory or on the path"),
        ("reload:app", "there is no module 'reload' in this directory or on the path"),
        ("no_such_shop --worker.id=3 --reload.dir=/x --log.level=on --app.dir=y", "there is no module"),
    ],
)
def test_invalid_argument_is_reported(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to write instead, where it can be guessed."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(run, arguments.split())
    assert result.exit_code == 2
    assert f"Error: {message}" in result.output


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import no_such_module\n",
            """ModuleNotFoundError: No module named 'no_such_module'
  File "shop.py", line 1, in <module>
    import no_such_module
""",
        ),
        (
            "from streamkit import StreamApplication\n\n@StreamApplication().stream_listener\ndef take(x): ...\n",
            """TypeError: take is not the name of a binding: write @app.stream_listener("orders")
  File "shop.py", line 3, in <module>
    @StreamApplication().stream_listener
""",
        ),
        ("def f(:\n", 'SyntaxError: invalid syntax\n  File "shop.py", line 1\n    def f(:\n'),
    ],
)
def test_error_of_the_module_is_reported_with_its_own_lines(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes first, and no lines of click, importlib and streamkit follow."""
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    (tmp_path / "shop.py").write_text(code)
    result = CliRunner().invoke(run, ["shop", "--app-dir", str(tmp_path)])
    assert result.exit_code == 1
    output = re.sub(r"^ *[~^]+$\n", "", result.output.replace(f"{tmp_path}/", ""), flags=re.MULTILINE)
    assert output.startswith(f"Error: cannot import 'shop': {message}")
    assert output.count("File ") == 1


def test_log_level_is_the_threshold_of_loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except details, which `debug` shows in full; kafka-python warns about connection attempts and losses."""
    monkeypatch.chdir(tmp_path)
    names = ("streamkit", "rocket_client", "kafka.coordinator", "kafka.net.connection", "kafka.net.manager")
    heard = []
    for level in ("debug", "info", "warning", "error", "critical"):
        CliRunner().invoke(run, ["no_such_shop", "--log-level", level])
        heard.append([logging.getLevelName(logging.getLogger(name).getEffectiveLevel()) for name in names])
    assert heard == [
        ["DEBUG"] * 5,
        ["INFO", "WARNING", "WARNING", "WARNING", "ERROR"],
        ["WARNING", "WARNING", "WARNING", "WARNING", "ERROR"],
        ["ERROR"] * 5,
        ["CRITICAL"] * 5,
    ]


def test_log_format_may_be_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment when the settings are read."""
    handler = logging.StreamHandler()
    monkeypatch.setattr(logging.root, "handlers", [handler])
    log_in_format_of_settings(StreamApplication(args=()))
    assert handler.formatter is None
    log_in_format_of_settings(StreamApplication(properties={"streamkit.logging.format": "json"}, args=()))
    assert isinstance(handler.formatter, JsonFormatter)
