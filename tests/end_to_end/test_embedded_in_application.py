"""Applications with an embedded RocketMQ broker."""

import asyncio
from pathlib import Path

import pytest

from streamkit import StreamApplication
from streamkit.errors import BinderError, BinderUnavailable

ROCKET = "spring.cloud.stream.rocketmq"


def shop(store: Path, **settings: str) -> tuple[StreamApplication, "asyncio.Queue[str]"]:
    """Return an application with a listener of topic `orders`, and what it received."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "rocketmq",
            "spring.cloud.stream.bindings.in.destination": "orders",
            "spring.cloud.stream.bindings.in.group": "kitchen",
            f"{ROCKET}.bindings.in.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
            f"{ROCKET}.binder.embedded": "always",
            f"{ROCKET}.binder.embedded-store": str(store),
            **{f"{ROCKET}.binder.{key}": value for key, value in settings.items()},
        },
    )

    @app.stream_listener("in")
    async def take(order: str) -> None:
        heard.put_nowait(order)

    return app, heard


def test_embedded_brokers_use_free_ports(tmp_path: Path) -> None:
    """Two applications have separate brokers and messages; the store is kept."""

    async def main() -> None:
        first, heard_first = shop(tmp_path / "first")
        second, heard_second = shop(tmp_path / "second")
        async with asyncio.timeout(60), first, second:
            await first.bridge.asend("orders", "1")
            assert await heard_first.get() == "1"
            await second.bridge.asend("orders", "2")
            assert await heard_second.get() == "2"
            assert heard_first.empty()

    asyncio.run(main())
    assert (tmp_path / "first" / "commitlog").is_dir()


def test_embedded_broker_on_a_store_in_use_is_refused(tmp_path: Path) -> None:
    """With the directory, and the settings to change it; the other application continues."""

    async def main() -> None:
        first, heard = shop(tmp_path)
        second, _ = shop(tmp_path)
        async with asyncio.timeout(60), first:
            with pytest.raises(BinderError) as caught:
                await second.start()
            assert not isinstance(caught.value, BinderUnavailable)
            reported = str(caught.value)
            assert reported.startswith(f"binder 'rocketmq' could not start its embedded broker: {tmp_path}")
            assert "another broker has this store open" in reported
            assert f"or set {ROCKET}.binder.embedded-store to another directory" in reported
            await first.bridge.asend("orders", "1")
            assert await heard.get() == "1"

    asyncio.run(main())


def test_embedded_broker_on_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """With the address, and how to use the existing broker."""

    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        app, _ = shop(tmp_path, name_server=f"{host}:{port}")
        async with server:
            with pytest.raises(BinderError, match=f"{host}:{port} is in use by another process.*name-server"):
                await app.start()

    asyncio.run(main())
