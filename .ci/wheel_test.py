"""What somebody who installed the wheel, and has no checkout, can do."""

import asyncio
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import streamkit
from rocket_client import ConsumeFromWhere, Producer, ProducerSettings, PushConsumer, PushConsumerSettings
from rocket_remoting import Message
from streamkit import StreamApplication, send_to


def test_the_packages_come_from_the_wheel():
    """Nothing is imported from a checkout."""
    assert "site-packages" in streamkit.__file__
    packages = ["streamkit", "rocket_remoting", "rocket_client", "rocket_admin", "rocket_broker", "rocket_console"]
    binders = ["binders.inmemory", "binders.kafka", "binders.rocket"]
    for package in (*packages, *binders, "pyspark_rocketmq", "pyspark_streamkit"):
        assert files(package).joinpath("py.typed").is_file(), package


def test_an_application_under_test():
    """The in-memory binder is found by its entry point."""
    app = StreamApplication(
        properties={
            "spring.cloud.stream.bindings.numbers.group": "squares",
            "spring.cloud.stream.output-bindings": "squares",
        }
    )

    @app.stream_listener("numbers")
    @send_to("squares")
    def square(number: int) -> int:
        return number * number

    with app.test() as test:
        test.input("numbers").send(7)
        assert test.output("squares").receive(int).payload == 49


def test_a_new_project(tmp_path):
    """The command and its templates are in the wheel."""
    command = ["new", "--binder", "acme", "--directory", str(tmp_path)]
    subprocess.run([Path(sys.executable).with_name("streamkit"), *command], check=True)
    assert (tmp_path / "binders" / "acme" / "plugin.py").is_file()


def test_a_real_broker_by_the_fixture(rocket_broker):
    """The pytest plugin is found by its entry point, and its broker serves the client."""

    async def main():
        received = asyncio.get_running_loop().create_future()

        async def listen(messages, context):
            received.set_result(messages[0].body)

        consumer = PushConsumer(
            "wheel",
            PushConsumerSettings(
                name_servers=rocket_broker.name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
            ),
        )
        consumer.subscribe("wheel")
        consumer.listen_concurrently(listen)
        async with Producer("wheel", ProducerSettings(name_servers=rocket_broker.name_server)) as producer:
            await producer.send(Message("wheel", b"round"))
            async with consumer:
                assert await asyncio.wait_for(received, 20) == b"round"

    asyncio.run(main())
