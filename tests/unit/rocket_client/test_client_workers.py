"""The workers of a push consumer: the tasks that call its listener."""

import asyncio

import pytest

from rocket_client.core.process_queue import ProcessQueue
from rocket_remoting.wire.record import decode_records
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, record
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster


@pytest.mark.parametrize("concurrency", [1, 2])
def test_message_that_comes_when_the_only_call_ends_is_delivered(virtual: VirtualTime, concurrency: int) -> None:
    """In the same turn of the loop, when the worker of the call has ended and the loop has not called back yet."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster, concurrency=concurrency)
            gate = asyncio.get_running_loop().create_future()
            script.says = lambda: asyncio.shield(gate)
            async with script.consumer:
                await asyncio.sleep(1)
                consumption = script.consumer._consumption
                (queue,) = (each for each in script.consumer.assigned if each.topic == "orders")
                process_queue = ProcessQueue(queue)
                consumption.attach(process_queue)

                def arrive(offset: int) -> None:
                    messages = list(decode_records(record(offset)))
                    process_queue.put(messages)
                    consumption.submit(process_queue, messages)

                arrive(5)
                await asyncio.sleep(1)
                for turns in range(5):
                    gate.set_result(None)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    gate = asyncio.get_running_loop().create_future()
                    arrive(6 + turns)
                    await asyncio.sleep(1)
                    assert script.heard[-1].queue_offset == 6 + turns
                gate.set_result(None)

    virtual.run(main())
