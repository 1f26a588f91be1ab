"""The gate before the pulls of queues."""

import asyncio

from rocket_client.core.pull_gate import PullGate
from rocket_remoting.wire.message import MessageQueue

QUEUE, OTHER = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def test_a_queue_waits_for_the_gate_and_for_its_own_pause() -> None:
    """The end of one of the two is not enough, whichever ends first."""

    async def main() -> None:
        for opens_first in (True, False):
            gate = PullGate()
            gate.close()
            gate.pause([QUEUE])
            waiting = asyncio.create_task(gate.wait_admitted(QUEUE))
            await asyncio.sleep(0)
            for open_now in (opens_first, not opens_first):
                assert not gate.admits(QUEUE)
                assert not waiting.done()
                if open_now:
                    gate.open()
                else:
                    gate.resume([QUEUE])
                for _ in range(3):
                    await asyncio.sleep(0)
            assert waiting.done()
            await waiting

    asyncio.run(main())


def test_a_paused_queue_holds_up_no_other() -> None:
    """Only the gate itself is for all queues."""
    gate = PullGate()
    gate.pause([QUEUE])
    assert not gate.admits(QUEUE)
    assert gate.admits(OTHER)
    gate.close()
    assert not gate.admits(OTHER)
