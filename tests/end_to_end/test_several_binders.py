"""One application on several messaging systems, of one type and of different types."""

import asyncio
from collections.abc import Mapping

import pytest

from rocket_broker.embedded import EmbeddedBroker
from streamkit import StreamApplication
from streamkit.binder.binder import HealthStatus
from streamkit.errors import ConfigurationError

STREAM = "spring.cloud.stream"
ROCKET = f"{STREAM}.rocketmq"


def application(settings: Mapping[str, str]) -> StreamApplication:
    """Return an application with these settings below `spring.cloud.stream`."""
    properties = {f"{STREAM}.{key}": value for key, value in settings.items()}
    return StreamApplication(config_location="optional:/none", properties=properties)


def rocket(name: str, address: str) -> dict[str, str]:
    """Return settings of a binder for the RocketMQ at the address."""
    return {
        f"binders.{name}.type": "rocketmq",
        f"binders.{name}.environment.{ROCKET}.binder.name-server": address,
        f"binders.{name}.environment.{ROCKET}.binder.provisioning": "create",
    }


def binding(name: str, topic: str, binder: str = "", group: str = "") -> dict[str, str]:
    """Return settings of a binding's destination, binder and group."""
    found = {"destination": topic, "binder": binder, "group": group}
    return {f"bindings.{name}.{key}": value for key, value in found.items() if value}


def test_two_brokers_of_one_type_are_separate() -> None:
    """With equal topics and groups, messages of one do not reach the other."""
    heard: list[str] = []
    done = asyncio.Event()

    async def main() -> None:
        async with EmbeddedBroker() as near, EmbeddedBroker() as far:
            app = application(
                {
                    **rocket("near", near.name_server_address),
                    **rocket("far", far.name_server_address),
                    "default-binder": "near",
                    **binding("orders", "orders", group="shop"),
                    **binding("near-orders", "orders"),
                    **binding("far-orders", "orders", "far"),
                    **binding("copied", "orders", "far", group="shop"),
                }
            )

            @app.stream_listener("orders")
            @app.send_to("far-orders")
            async def copy(text: str) -> str:
                heard.append(f"near {text}")
                return text.upper()

            @app.stream_listener("copied")
            async def hear(text: str) -> None:
                heard.append(f"far {text}")
                if len(heard) == 5:
                    done.set()

            async with asyncio.timeout(60), app:
                assert await app.bridge.asend("shop", "nobody hears this", binder="far")
                for text in "ab":
                    await app.bridge.asend("near-orders", text)
                await app.bridge.asend("far-orders", "c")
                await done.wait()
                health = {name: await binder.health() for name, binder in app.container.binders().made.items()}
            assert {each.status for each in health.values()} == {HealthStatus.UP}
            assert health["near"].details["nameServer"] == near.name_server_address
            assert health["far"].details["nameServer"] == far.name_server_address

    asyncio.run(main())
    assert sorted(heard) == ["far A", "far B", "far c", "near a", "near b"]


def test_binders_of_two_types_are_selected_by_bindings() -> None:
    """RocketMQ for the outside, memory inside."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def main() -> None:
        async with EmbeddedBroker() as broker:
            app = application(
                {
                    **rocket("outside", broker.name_server_address),
                    "binders.inside.type": "inmemory",
                    "default-binder": "outside",
                    **binding("orders-in", "orders"),
                    **binding("orders", "orders", group="shop"),
                    **binding("work", "orders", "inside"),
                    **binding("worker", "orders", "inside", group="shop"),
                    **binding("done", "done"),
                    **binding("told", "done", group="teller"),
                }
            )

            @app.stream_listener("orders")
            @app.send_to("work")
            async def take_in(text: str) -> str:
                return f"{text} in"

            @app.stream_listener("worker")
            @app.send_to("done")
            async def work(text: str) -> str:
                return f"{text} out"

            @app.stream_listener("told")
            async def hear(text: str) -> None:
                heard.put_nowait(text)

            async with asyncio.timeout(60), app:
                await app.bridge.asend("orders-in", "x")
                assert await heard.get() == "x in out"

    asyncio.run(main())


def refusal(settings: Mapping[str, str]) -> str:
    """Return the error of an application with one listener and these settings; nothing is connected."""
    app = application({**binding("in", "topic", group="g"), **settings})
    app.stream_listener("in")(lambda: None)
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(app.start())
    return str(caught.value)


def test_ambiguous_default_binder_lists_the_candidates() -> None:
    """And the settings that decide; non-candidates are omitted."""
    two = {"binders.one.type": "inmemory", "binders.two.type": "inmemory"}
    assert refusal(two) == (
        "there are several binders, one, two: choose one with spring.cloud.stream.default-binder, or for each "
        "binding with spring.cloud.stream.bindings.<name>.binder"
    )
    third = {"binders.three.type": "inmemory", "binders.three.default-candidate": "false"}
    assert "several binders, one, two:" in refusal({**two, **third})
    alone = {"binders.one.type": "inmemory", **third, **binding("in", "topic", group="g")}
    with application(alone) as app:
        assert app.bindings == {}


def test_unknown_binder_is_reported_with_the_known_ones() -> None:
    """Any entry below `binders` disables automatic ones."""
    reported = refusal({"binders.one.type": "inmemory", "bindings.in.binder": "rocketmq"})
    assert "given in code: spring.cloud.stream.bindings.in.binder=rocketmq: there is no binder 'rocketmq'" in reported
    assert "known: one" in reported
    reported = refusal({"binders.one.type": "memory"})
    assert "there is no binder type 'memory'; installed: inmemory" in reported


def test_binder_environment_is_private() -> None:
    """Other binders do not see it; with inherit-environment=false it sees nothing else."""
    partitions = "spring.cloud.stream.inmemory.binder.partitions"
    settings = {
        "inmemory.binder.partitions": "3",
        "binders.own.type": "inmemory",
        f"binders.own.environment.{partitions}": "5",
        "binders.inheriting.type": "inmemory",
        "binders.bare.type": "inmemory",
        "binders.bare.inherit-environment": "false",
        "default-binder": "own",
        **{key: value for name in ("own", "inheriting", "bare") for key, value in binding(name, "t", name).items()},
        "output-bindings": "own;inheriting;bare",
    }

    async def main() -> dict[str, int]:
        async with application(settings) as app:
            made = app.container.binders().made
            return {name: made[name].broker.destination("t").partitions for name in made}

    assert asyncio.run(main()) == {"own": 5, "inheriting": 3, "bare": 4}
