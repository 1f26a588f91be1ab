"""The modules loaded by an import or a command in a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

OURS = {"streamkit", "rocket_client", "rocket_admin", "rocket_remoting", "rocket_broker", "binders"}
HEAVY_OF_PYTHON = {"asyncio", "ssl", "socket", "subprocess", "multiprocessing", "xml"}


def loaded_by(code: str) -> set[str]:
    """Return the modules that `code` loads in a fresh interpreter."""
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(); print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def packages_of_others(modules: set[str]) -> set[str]:
    """Return the packages among `modules` that are neither Python's nor in this repository."""
    packages = {name.partition(".")[0] for name in modules}
    return packages - OURS - sys.stdlib_module_names


@pytest.mark.parametrize("package", ["streamkit", "streamkit.messaging", "rocket_client", "rocket_remoting"])
def test_package_imports_lazily(package: str) -> None:
    """Neither its own modules, nor third-party packages, nor asyncio."""
    loaded = loaded_by(f"import {package}")
    parents = {"streamkit"} if package == "streamkit.messaging" else set()
    assert {name for name in loaded if name.partition(".")[0] in OURS} == {package, *parents}
    assert packages_of_others(loaded) == set()
    assert loaded.isdisjoint({*HEAVY_OF_PYTHON, "logging"})


def test_message_loads_no_channel() -> None:
    """Only payload and headers; errors and settlements need no more either."""
    loaded = loaded_by("from streamkit import ErrorMessage, Message, Reject, Requeue, StreamkitError")
    assert {name for name in loaded if name.startswith("streamkit.messaging.")} == {
        "streamkit.messaging.headers",
        "streamkit.messaging.message",
    }
    assert packages_of_others(loaded) == set()
    assert loaded.isdisjoint({*HEAVY_OF_PYTHON, "logging"})


def test_channels_of_plain_functions_load_no_loop() -> None:
    """Handlers, interceptors and queue channels work without asyncio."""
    loaded = loaded_by("""
from streamkit.messaging import DirectChannel, LoopPortal, Message, PublishSubscribeChannel, QueueChannel
queue = QueueChannel("queue")
for channel in (DirectChannel("direct"), PublishSubscribeChannel("all")):
    channel.subscribe(queue.send)
    assert channel.send(Message("tea"))
    assert queue.receive().payload == "tea"
assert queue.receive(timeout=0.001) is None
""")
    assert packages_of_others(loaded) == set()
    assert loaded.isdisjoint(HEAVY_OF_PYTHON)


def test_converters_load_pydantic_and_avro_on_demand() -> None:
    """All other payloads are converted by msgspec."""
    loaded = loaded_by("""
from streamkit.messaging import CompositeMessageConverter
assert CompositeMessageConverter().reader(list[int], "application/json")(b"[1]") == [1]
""")
    assert packages_of_others(loaded) <= {"msgspec", "typing_extensions"}
    assert "msgspec" in loaded
    assert loaded.isdisjoint({"asyncio", "ssl", "subprocess"})


def help_of(*arguments: str) -> set[str]:
    """Return the modules that a command's help loads."""
    return loaded_by(f"from streamkit.cli import main\nmain([*{arguments!r}, '--help'], standalone_mode=False)")


def test_list_of_commands_loads_no_command() -> None:
    """It is read from entry points and source code."""
    loaded = help_of()
    assert packages_of_others(loaded) == {"click"}
    assert loaded.isdisjoint({"asyncio", "ssl", "subprocess", "multiprocessing", "xml"})
    assert {name for name in loaded if name.startswith("streamkit.")} == {
        "streamkit.cli",
        "streamkit.entry_points",
        "streamkit.patterns",  # the packages above a command's module are imported when it is looked for
        "streamkit.patterns.outbox",
    }


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_help_of_a_server_loads_no_server(command: str) -> None:
    """Neither its settings nor its store; a broker's has the texts of the commands for running ones."""
    loaded = help_of(command)
    assert packages_of_others(loaded) == {"click"}
    assert loaded.isdisjoint(HEAVY_OF_PYTHON - {"socket"})
    ours = {name for name in loaded if name.startswith("rocket_")}
    assert {name for name in ours if not name.startswith("rocket_admin")} == {
        "rocket_broker",
        "rocket_broker.process",
        "rocket_broker.process.cli",
    } | ({"rocket_broker.process.promote"} if command == "broker" else set())


@pytest.mark.parametrize("command", ["group", "message", "transaction"])
def test_help_of_administration_loads_no_client(command: str) -> None:
    """Nor tables, nor what reads settings: all that is imported when the command runs."""
    loaded = help_of(command)
    assert packages_of_others(loaded) == {"click"}
    assert loaded.isdisjoint(HEAVY_OF_PYTHON - {"socket"})
    ours = {name for name in loaded if name.startswith(("rocket_", "streamkit.config", "binders"))}
    assert f"rocket_admin.commands.{command}" in ours
    assert {name for name in ours if not name.startswith("rocket_admin.commands")} == {"rocket_admin"}


@pytest.mark.parametrize("arguments", [("topic", "list"), ("group", "list"), ("dlq", "list"), ("message", "show", "1")])
def test_first_request_needs_no_models_of_settings(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The name server of an application is looked up, without the models that would judge all settings."""
    (tmp_path / "application.properties").write_text(
        "spring.cloud.stream.rocketmq.binder.name-server=127.0.0.1:1\nspring.cloud.stream.bindings.input.group=g\n"
    )
    loaded = loaded_by(f"""
import os
from streamkit.cli import main
os.environ.pop("NAMESRV_ADDR", None)
os.chdir({str(tmp_path)!r})
try:
    main([*{arguments!r}], standalone_mode=False)
except Exception as error:
    assert "application.properties:1" in str(error), error
""")
    assert "rocket_client.admin" in loaded
    assert packages_of_others(loaded) <= {"click", "javaproperties", "msgspec", "lz4", "typing_extensions", "zstandard"}
    assert loaded.isdisjoint({"rocket_admin.doctor", "streamkit.config.settings", "rocket_broker"})


@pytest.mark.parametrize(
    "arguments",
    [("config",), ("config", "explain"), ("config", "report"), ("run",), ("new",), ("bench",), ("send",), ("tail",)],
)
def test_help_of_a_command_loads_no_application(arguments: tuple[str, ...]) -> None:
    """Nor modules for settings, tables or messages."""
    loaded = help_of(*arguments)
    assert packages_of_others(loaded) == {"click"}
    assert loaded.isdisjoint(HEAVY_OF_PYTHON - {"socket", "subprocess"})
    parts = {name for name in loaded if name.startswith(("streamkit.", "binders"))}
    assert parts <= {
        "streamkit.cli",
        f"streamkit.cli.{arguments[0]}",
        "streamkit.cli.garbage",
        "streamkit.cli.setting_arguments",
        "streamkit.cli.worker",
        "streamkit.cli.terminal_log",
        "streamkit.config",
        "streamkit.config.relaxed",
        "streamkit.config.secret",
        "streamkit.entry_points",
    }
