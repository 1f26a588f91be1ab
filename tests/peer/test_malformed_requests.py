"""Malformed requests to Apache's 4.9.7 broker and ours: equal codes, offsets and stored messages."""

import asyncio
from typing import Any

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import TcpTransport
from tests.end_to_end.malformed_requests import Side
from tests.end_to_end.raw_client import RawClient
from tests.peer.conftest import Peers


def test_malformed_requests_are_answered_as_by_apaches_broker(peers: Peers) -> None:
    """Wrong numbers, names, properties, offsets, transactions, filters and bodies; our remarks say what is wrong."""

    async def both() -> tuple[list[Any], list[Any], list[str]]:
        async with EmbeddedBroker() as embedded:
            addresses = peers.broker("4.9.7").address, embedded.broker_address
            sides = [Side(await RawClient.connect(TcpTransport(), address), address) for address in addresses]
            theirs, ours = await asyncio.gather(*(side.answers() for side in sides))
            for side in sides:
                await side.client.connection.close()
            return theirs, ours, sides[1].remarks

    theirs, ours, remarks = asyncio.run(both())
    for expected, answered in zip(theirs, ours, strict=True):
        assert answered == expected
    assert len(remarks) > 40
    assert all(remarks)
    assert not [remark for remark in remarks if "Error:" in remark or "Exception" in remark]
