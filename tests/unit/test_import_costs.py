"""The modules loaded by an import or a command in a fresh interpreter."""

import pkgutil
import subprocess
import sys
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

OURS = {"streamkit", "rocket_client", "rocket_admin", "rocket_remoting", "rocket_broker", "rocket_console", "binders"}
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


@pytest.mark.parametrize("package", ["rocket_client", "rocket_remoting"])
def test_package_has_no_dataclass(package: str) -> None:
    """Python would compile the methods of each at every start of a command; those of `msgspec.Struct` are in C."""
    modules = [each.name for each in pkgutil.walk_packages(import_module(package).__path__, f"{package}.")]
    classes = {each for name in modules for each in vars(import_module(name)).values() if isinstance(each, type)}
    assert len(classes) > 100
    assert [each for each in classes if each.__module__ in modules and is_dataclass(each)] == []


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
    assert loaded.isdisjoint({"asyncio", "ssl", "subprocess", "multiprocessing", "xml", "importlib.metadata", "email"})
    assert {name for name in loaded if name.startswith("streamkit.")} == {
        "streamkit.cli",
        "streamkit.entry_points",
        "streamkit.patterns",  # the packages above a command's module are imported when it is looked for
        "streamkit.patterns.inbox",
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


def test_start_of_a_broker_loads_no_optional_part() -> None:
    """Neither replication, metrics, users and faults, nor the console beside it, nor what only errors need."""
    loaded = loaded_by("import rocket_broker.process.launch, rocket_broker.process.service, rocket_broker.broker")
    optional = {
        "rocket_broker.access.policy_control",
        "rocket_broker.access.user_directory",
        "rocket_broker.metrics.broker_metrics",
        "rocket_broker.metrics.endpoint",
        "rocket_broker.process.console_beside",
        "rocket_broker.replication.master",
        "rocket_broker.replication.slave",
        "rocket_broker.requests.fault_injection",
        "streamkit.chaos",
        "streamkit.exposition",
    }
    assert loaded.isdisjoint(optional | {"difflib", "javaproperties", "lark", "rich", "tomllib", "yaml", "zipfile"})


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
    assert packages_of_others(loaded) <= {"click", "msgspec", "lz4", "typing_extensions", "zstandard"}
    assert loaded.isdisjoint({"rocket_admin.doctor", "streamkit.config.settings", "rocket_broker"})
    assert loaded.isdisjoint({"rocket_remoting.wire.bodies.registration", "rocket_remoting.wire.json_walk"})
    assert loaded.isdisjoint({"importlib.metadata", "email", "http", "xml"})


@pytest.mark.parametrize(
    "arguments",
    [("send", "orders", "tea"), ("tail", "orders"), ("config", "report"), ("doctor", "--for", "0")],
    ids=lambda arguments: arguments[0],
)
def test_commands_with_settings_load_no_more_than_they_need(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """No producer or consumer, table layout, server or other client before the first request, and not pydantic."""
    (tmp_path / "application.properties").write_text(
        "spring.cloud.stream.rocketmq.binder.name-server=127.0.0.1:1\nspring.cloud.stream.bindings.orders.group=g\n"
    )
    loaded = loaded_by(f"""
import os
from streamkit.cli import main
os.environ.pop("NAMESRV_ADDR", None)
os.chdir({str(tmp_path)!r})
try:
    main([*{arguments!r}], standalone_mode=False)
except Exception as error:
    assert "127.0.0.1:1" in str(error), error
""")
    assert "binders.rocket.binder" in loaded
    assert packages_of_others(loaded) <= {
        "blinker", "click", "lz4", "msgspec", "pluggy", "rich", "typing_extensions", "zstandard",
    }  # fmt: skip
    assert loaded.isdisjoint({"importlib.metadata", "email"})
    if arguments[0] != "doctor":  # its checks of the cluster may read messages
        clients = ("rocket_client.consuming", "rocket_client.producing")
        assert {name for name in loaded if name.startswith(clients)} == set()
    receives = {"streamkit.binder.receiving", "streamkit.binder.retry_policies"}
    assert loaded.isdisjoint(receives) == (arguments[0] == "send")
    assert loaded.isdisjoint(
        {"streamkit.binder.transactional_sending", "streamkit.messaging.avro_converter", "binders.rocket.producer"}
    )
    assert loaded.isdisjoint(
        {"binders.rocket.consumer", "binders.rocket.polled", "binders.rocket.transactions", "binders.kafka.binder"}
    )
    assert loaded.isdisjoint(
        {"rich.console", "opentelemetry", "kafka", "uvicorn", "starlette.applications", "rocket_broker", "sqlalchemy"}
    )
    assert loaded.isdisjoint({"streamkit.config.management_properties", "streamkit.config.pattern_properties"})
    assert loaded.isdisjoint(
        {"streamkit.binder.exploring", "streamkit.config.reference", "streamkit.expression.parser"}
    )
    # No part of an application but its settings, and no classes of pydantic-settings, which are for users' own.
    assert loaded.isdisjoint({"dependency_injector", "pydantic_settings", "javaproperties"})
    assert {"streamkit.application", "streamkit.assembly", "streamkit.container", "streamkit.listeners"}.isdisjoint(
        loaded
    )


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
        "streamkit.cli.binding_names",
        "streamkit.cli.garbage",
        "streamkit.cli.setting_arguments",
        "streamkit.cli.terminal_log",
        "streamkit.config",
        "streamkit.config.relaxed",
        "streamkit.config.secret",
        "streamkit.entry_points",
        "streamkit.log_format",
        "streamkit.processes",
        "streamkit.processes.supervisor_line",
    }


def test_name_server_loads_no_broker(tmp_path: Path) -> None:
    """Neither its settings nor its store; the command fails here because the port is in use."""
    loaded = loaded_by(f"""
import os, socket
from streamkit.cli import main
os.chdir({str(tmp_path)!r})
with socket.create_server(("127.0.0.1", 0)) as taken:
    try:
        main(["namesrv", "-p", str(taken.getsockname()[1])], standalone_mode=False)
    except Exception as error:
        assert "is in use" in str(error), error
""")
    ours = {name for name in loaded if name.startswith("rocket_broker.")}
    assert "rocket_broker.namesrv.server" in ours
    assert ours.isdisjoint({"rocket_broker.broker", "rocket_broker.settings.broker_settings"})
    brokers = ("processors", "pulling", "replication", "schedule", "store", "tables", "transaction", "writing")
    assert {name for name in ours if name.split(".")[1] in brokers} == set()
