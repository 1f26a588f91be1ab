"""The admin client for topics and groups; its requests are tested on a real Kafka by `test_kafka_binder`."""

import asyncio
import socket
import threading

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError

from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.connecting import Interruption, connected
from binders.kafka.topics import Topics


class Admin:
    """An admin client that records whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def given_up_while(fails: bool) -> Admin:
    """Cancel the start of a client before it has connected or failed; return the client."""
    admin = Admin()

    async def main() -> None:
        has_begun, goes_on = threading.Event(), threading.Event()

        def connect(interruption: Interruption) -> Admin:
            has_begun.set()
            assert goes_on.wait(60)
            if fails:
                raise KafkaTimeoutError("away")
            return admin

        starting = asyncio.create_task(Topics.connected(connect, KafkaBinderProperties()))
        await asyncio.to_thread(has_begun.wait)
        starting.cancel()
        goes_on.set()
        await asyncio.wait([starting])
        assert starting.cancelled()

    asyncio.run(main())
    return admin


def test_admin_client_of_a_cancelled_start_is_closed() -> None:
    """A thread cannot be cancelled; an error of it is ignored."""
    assert given_up_while(fails=False).is_closed
    assert not given_up_while(fails=True).is_closed


def kafka_threads() -> list[threading.Thread]:
    """The running threads of kafka-python's clients."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("kafka-io")]


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_start_that_is_cancelled_does_not_wait_for_brokers(listens: bool, has_begun: bool) -> None:
    """Connecting, which would take an hour here, is interrupted; its threads end."""

    async def main(address: str) -> None:
        def connect(interruption: Interruption) -> object:
            config = {"bootstrap_servers": address, "bootstrap_timeout_ms": 3_600_000}
            return connected(KafkaAdminClient, config, interruption)

        starting = asyncio.create_task(Topics.connected(connect, KafkaBinderProperties()))
        await asyncio.sleep(0)
        while has_begun and not kafka_threads():  # noqa: ASYNC110  # a thread sets no event
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(main(f"127.0.0.1:{server.getsockname()[1] if listens else 1}"))
    assert not kafka_threads()
