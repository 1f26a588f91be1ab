"""The broker as a process: started, stopped, killed, restarted."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rocket_remoting import TcpTransport
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import TopicRouteData
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import GetRouteInfoRequestHeader
from tests.end_to_end.broker_process import PATIENT, ServerProcess, running
from tests.end_to_end.raw_client import RawClient
from tests.native_core import needs_native_core
from tests.ports import free_ports

T = TypeVar("T")

UNKNOWN = 9_999
"""A request that every server answers."""


def with_client(address: str, scene: Callable[[RawClient], Coroutine[Any, Any, T]]) -> T:
    """Run a scene with a connection to the address."""

    async def main() -> T:
        client = await RawClient.connect(TcpTransport(), address)
        try:
            return await scene(client)
        finally:
            await client.connection.close()

    return asyncio.run(main())


def store_with(tmp_path: Path, **settings: str) -> tuple[str, ...]:
    """Return arguments for a broker on a free port with store and settings in the directory."""
    config = tmp_path / "broker.conf"
    lines = {
        "brokerName": "broker-a",
        "storePathRootDir": str(tmp_path / "store"),
        "listenPort": "0",
        **settings,
        **PATIENT,
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return "-c", str(config)


async def send_three(client: RawClient) -> None:
    for body in (b"one", b"two", b"three"):
        await client.send("orders", body)
    await client.heartbeat(consumers={"g": {"orders": "*"}})
    assert (await client.commit(2)).code == ResponseCode.SUCCESS


async def read_back(client: RawClient) -> tuple[list[bytes], int | None]:
    bodies = [bytes(message.body) for message in await client.messages("orders")]
    return bodies, await client.committed()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_broker_has_written_everything(tmp_path: Path, number: signal.Signals) -> None:
    """It exits with code 0, and restarts with its topics, messages and offsets."""
    arguments = store_with(tmp_path)
    with running("broker", *arguments, cwd=tmp_path) as broker:
        with_client(broker.address(), send_three)
        assert broker.signal(number) == 0
        assert broker.output[-1] == "Stopped.\n"
    with running("broker", *arguments, cwd=tmp_path) as broker:
        assert with_client(broker.address(), read_back) == ([b"one", b"two", b"three"], 2)
        assert "the broker before was stopped in order" in "".join(broker.log)


@pytest.mark.promise
def test_killed_broker_has_all_acknowledged_messages(tmp_path: Path) -> None:
    """After kill -9 during sends each is there, once and complete."""
    arguments = store_with(tmp_path, mappedFileSizeCommitLog="1048576")
    acknowledged: list[int] = []

    async def send_until_killed(client: RawClient, broker: ServerProcess) -> None:
        async def send(number: int) -> None:
            body = b"%d:" % number + b"x" * (number % 3000)
            await client.send("orders", body)
            acknowledged.append(number)

        for start in range(0, 100_000, 50):
            if len(acknowledged) >= 1_000:
                await asyncio.to_thread(broker.signal, signal.SIGKILL)
            answers = await asyncio.gather(*map(send, range(start, start + 50)), return_exceptions=True)
            if any(isinstance(answer, RemotingError) for answer in answers):
                return

    with running("broker", *arguments, cwd=tmp_path) as broker:
        address = broker.address()
        with_client(address, lambda client: send_until_killed(client, broker))
    assert len(acknowledged) >= 1_000

    async def read_all(client: RawClient) -> list[bytes]:
        bodies: list[bytes] = []
        while messages := await client.messages("orders", offset=len(bodies)):
            bodies += [bytes(message.body) for message in messages]
        return bodies

    with running("broker", *arguments, cwd=tmp_path) as broker:
        bodies = with_client(broker.address(), read_all)
        assert "the broker before was killed" in "".join(broker.log)
    numbers = [int(body.partition(b":")[0]) for body in bodies]
    assert set(acknowledged) <= set(numbers)
    assert len(numbers) == len(set(numbers))
    assert all(len(body.partition(b":")[2]) == number % 3000 for body, number in zip(bodies, numbers, strict=True))


def test_killed_broker_has_its_last_written_offsets(tmp_path: Path) -> None:
    """consumerOffset.json is written periodically; topics and groups with every change."""
    arguments = store_with(tmp_path, flushConsumerOffsetInterval="20")
    stored = tmp_path / "store" / "config" / "consumerOffset.json"

    async def commit_and_wait(client: RawClient) -> None:
        await send_three(client)
        async with asyncio.timeout(60):
            while not stored.exists():
                await client.commit(2)

    with running("broker", *arguments, cwd=tmp_path) as broker:
        with_client(broker.address(), commit_and_wait)
        broker.signal(signal.SIGKILL)
    with running("broker", *arguments, cwd=tmp_path) as broker:
        assert with_client(broker.address(), read_back) == ([b"one", b"two", b"three"], 2)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells what a process has loaded")
@needs_native_core
def test_serving_broker_has_loaded_the_native_core(tmp_path: Path) -> None:
    """The first batch does not wait for it."""
    with running("broker", *store_with(tmp_path), cwd=tmp_path) as broker:
        broker.address()
        assert "/rocket_native" in Path(f"/proc/{broker.process_id}/maps").read_text()


def test_broker_and_name_server_find_each_other(tmp_path: Path) -> None:
    """Routes name the broker; it continues without the name server and registers with the next one."""

    async def route(client: RawClient) -> str:
        header = GetRouteInfoRequestHeader(topic="orders")
        data = await client.fetch(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicRouteData, header)
        return data.broker_datas[0].broker_addrs[0]

    port = str(free_ports()[0])
    with running("namesrv", "-p", port, cwd=tmp_path) as first:
        routes = first.address()
        with running("broker", *store_with(tmp_path), "-n", routes, cwd=tmp_path) as broker:
            address = broker.address()
            with_client(address, send_three)
            assert with_client(routes, route) == address
            first.signal(signal.SIGKILL)
            broker.wait_for_log("could not register with name server")
            assert with_client(address, read_back) == ([b"one", b"two", b"three"], 2)
            with running("namesrv", "-p", port, cwd=tmp_path) as second:
                second.address()
                broker.wait_for_log(": registered with name server", times=2)
                assert with_client(routes, route) == address
            assert broker.signal(signal.SIGTERM) == 0


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_port_in_use_is_a_one_line_error(tmp_path: Path, command: str) -> None:
    """With the address, the setting and exit code 1, without a traceback."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = store_with(tmp_path) if command == "broker" else ()
        with running(command, *arguments, "-p", str(port), cwd=tmp_path) as process:
            assert process.wait() == 1
    advice = "stop it or choose another port with listenPort or --port"
    assert f"Error: 127.0.0.1:{port} is in use by another process: {advice}" in "".join(process.log)
    assert "Traceback" not in "".join(process.log)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listenPrt=1", "broker.conf:4: listenPrt=1: unknown key; did you mean listenPort?"),
        ("brokerPermission=9", "broker.conf:4: brokerPermission=9: expected 6"),
        (
            "authenticationEnabled=true",
            "broker.conf:4: authenticationEnabled=true: needs authenticationMetadataProvider",
        ),
    ],
)
def test_wrong_settings_file_is_a_one_line_error(tmp_path: Path, line: str, message: str) -> None:
    """File, line, key, value and what is expected; nothing is started."""
    key, _, value = line.partition("=")
    with running("broker", *store_with(tmp_path, **{key: value}), cwd=tmp_path) as process:
        assert process.wait() == 1
    assert message in "".join(process.log)
    assert not (tmp_path / "store").exists()


def test_second_broker_on_a_store_is_refused(tmp_path: Path) -> None:
    """The error names the directory."""
    arguments = store_with(tmp_path)
    with running("broker", *arguments, cwd=tmp_path) as first:
        first.address()
        with running("broker", *arguments, cwd=tmp_path) as second:
            assert second.wait() == 1
        assert "another broker has this store open" in "".join(second.log)
        assert first.signal(signal.SIGTERM) == 0


def test_unwritable_store_is_a_one_line_error(tmp_path: Path) -> None:
    """Before anything is served, with the file."""
    (tmp_path / "store").write_text("a file where the directory should be")
    with running("broker", *store_with(tmp_path), cwd=tmp_path) as broker:
        assert broker.wait() == 1
        log = "".join(broker.log)
    assert f"the store in {tmp_path / 'store'} cannot be used" in log
    assert "Traceback" not in log


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="Linux has a directory that nobody may write to")
def test_unwritable_directory_is_a_one_line_error(tmp_path: Path) -> None:
    """Even for root: the system's error, and what to do."""
    arguments = store_with(tmp_path, storePathRootDir="/sys/kernel/streamkit")
    with running("broker", *arguments, cwd=tmp_path) as broker:
        assert broker.wait() == 1
        log = "".join(broker.log)
    assert "the store in /sys/kernel/streamkit cannot be used: /sys/kernel/streamkit: " in log
    assert "give the broker another directory (storePathRootDir or --store, storePathCommitLog)" in log
    assert "Traceback" not in log


def test_effective_settings_are_shown_with_their_origins(tmp_path: Path) -> None:
    """Each supported key with value and origin; nothing is started."""
    arguments = store_with(tmp_path, brokerPermission="4")
    with running("broker", *arguments, "-p", "0", "-m", "--json", cwd=tmp_path) as process:
        assert process.wait() == 0
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads("".join(process.output))}
    assert rows["brokerPermission"] == ("4", f"{tmp_path}/broker.conf:4")
    assert rows["listenPort"] == ("0", "option -p")
    assert rows["brokerClusterName"] == ("DefaultCluster", "default")


def test_broker_without_arguments_starts_its_own_name_server(tmp_path: Path) -> None:
    """Without -c and -n: 9876 and 10911 on loopback, the store in ./.streamkit, Apache's lines on the terminal."""
    for port in (9876, 10911):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port} is in use on this machine")
    with running("broker", cwd=tmp_path) as broker:
        assert broker.address() == "127.0.0.1:10911"
        assert broker.output[0].startswith("The Name Server boot success. serializeType=JSON")
        assert broker.output[1].startswith(
            "The broker[broker-a, 127.0.0.1:10911] boot success. serializeType=JSON and name server is 127.0.0.1:9876"
        )
        with_client("127.0.0.1:10911", send_three)
        assert broker.signal(signal.SIGTERM) == 0
    assert (tmp_path / ".streamkit" / "commitlog").is_dir()


def test_broker_finds_its_own_name_server_on_any_port(tmp_path: Path) -> None:
    """With free ports too."""
    with running("broker", "-p", "0", "--name-server-port", "0", cwd=tmp_path) as broker:
        address = broker.address()
        broker.wait_for_log(f"broker broker-a of cluster DefaultCluster registered at {address}")
        name_server = broker.output[0].split()[-1]
        assert broker.output[1].rstrip().endswith(f"name server is {name_server}")


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Set a service manager's socket in the environment of started processes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield manager


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_systemd_is_notified_of_start_and_stop(tmp_path: Path, systemd: socket.socket, command: str) -> None:
    """As Type=notify requires: after READY clients can connect."""
    arguments = store_with(tmp_path) if command == "broker" else ("-p", "0")
    with running(command, *arguments, cwd=tmp_path) as server:
        assert systemd.recv(1000) == b"READY=1"
        host, _, port = server.address().rpartition(":")
        socket.create_connection((host, int(port))).close()
        assert server.signal(signal.SIGTERM) == 0
        assert systemd.recv(1000) == b"STOPPING=1"


def test_systemd_is_notified_after_the_registration(tmp_path: Path, systemd: socket.socket) -> None:
    """Services started after the broker find its topics in the routes."""

    async def main() -> None:
        asked: asyncio.Queue[tuple[Connection, RemotingCommand]] = asyncio.Queue()
        name_server = await TcpTransport().serve("127.0.0.1", 0, lambda *asking: asked.put_nowait(asking))
        arguments = (*store_with(tmp_path), "-n", name_server.address)
        with running("broker", *arguments, cwd=tmp_path) as broker:
            connection, registration = await asked.get()
            assert registration.code == RequestCode.REGISTER_BROKER
            systemd.setblocking(False)
            with pytest.raises(BlockingIOError):
                systemd.recv(1000)
            connection.respond(RemotingCommand.response(registration, ResponseCode.SUCCESS))
            systemd.settimeout(60)
            assert await asyncio.to_thread(systemd.recv, 1000) == b"READY=1"
            broker.end()
        await name_server.close()

    asyncio.run(main())


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_connections_per_address_are_limited(tmp_path: Path, command: str) -> None:
    """Beyond its share an address is refused; others are served."""
    config = tmp_path / "server.conf"
    store = f"storePathRootDir={tmp_path / 'store'}\n" if command == "broker" else ""
    config.write_text(f"listenPort=0\nmaxAddressConnectionsRatio=1\n{store}")
    with running(command, "-c", str(config), cwd=tmp_path) as server, ExitStack() as opened:
        host, _, port = server.address().rpartition(":")

        def is_served(source: str) -> bool:
            address = (host, int(port))
            connection = socket.create_connection(address, timeout=60, source_address=(source, 0))
            opened.enter_context(connection)
            try:
                connection.sendall(b"".join(RemotingCommand.request(UNKNOWN).encode()))
                return bool(connection.recv(1))
            except ConnectionError:
                return False

        most = next(number for number in range(1_000) if not is_served("127.0.0.2"))
        assert 1 <= most <= 100
        assert is_served("127.0.0.3")
        assert all(is_served("127.0.0.1") for _ in range(most + 1))
        server.wait_for_log(f": {most} of 127.0.0.2 are open, which is the limit of one address")
