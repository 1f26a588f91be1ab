"""Do the name servers answer, and agree on brokers and topics?

A broker registers with each name server itself, and they do not tell each other. A client asks any one of them, so one
that lacks a broker sends some clients astray and not others.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from rocket_client import Admin, NameServersUnreachableError
from rocket_remoting import RemotingError
from rocket_remoting.wire.bodies import ClusterInfo
from streamkit.findings import Finding, Severity, listed

__all__ = ["NameServerView", "disagreements", "look"]

CHECK = "name servers"


class NameServerView(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as one name server describes it.

    Attributes:
        address: Its address.
        admin: A running admin that asks only this name server.
        cluster: The brokers that it knows.
        topics: The topics that it knows.
    """

    address: str
    admin: Admin
    cluster: ClusterInfo
    topics: frozenset[str]

    @property
    def places(self) -> dict[tuple[str, int], str]:
        """The addresses of the brokers by name and id."""
        return {
            (name, broker_id): address
            for name, data in self.cluster.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        }


async def look(admin: Admin, stack: AsyncExitStack) -> tuple[list[NameServerView], list[Finding]]:
    """Ask each name server; return what those that answer say, and the findings about the others.

    Args:
        admin: A running admin. Addresses that it fetches from a server by HTTP are not asked one by one.
        stack: Ends the admins of the views.
    """
    addresses = admin.settings.name_server_addresses or (admin.settings.name_servers_text,)
    results = await asyncio.gather(*(_view(admin, address, stack) for address in addresses))
    return (
        [result for result in results if isinstance(result, NameServerView)],
        [result for result in results if isinstance(result, Finding)],
    )


async def _view(admin: Admin, address: str, stack: AsyncExitStack) -> NameServerView | Finding:
    alone = admin
    if len(admin.settings.name_server_addresses) > 1:
        settings = replace(admin.settings, name_servers=address)
        alone = await stack.enter_async_context(Admin(settings, transport=admin.transport, clock=admin.clock))
    try:
        cluster, topics = await asyncio.gather(alone.cluster_info(), alone.topics())
    except RemotingError as error:
        cause = error.causes[0] if isinstance(error, NameServersUnreachableError) and error.causes else error
        return Finding(
            severity=Severity.ERROR,
            check=CHECK,
            about=(address,),
            found=f"name server {address} does not answer: {cause}",
            mend="start it, or take it out of the name server addresses of clients and brokers",
        )
    return NameServerView(address=address, admin=alone, cluster=cluster, topics=frozenset(topics))


def disagreements(views: Sequence[NameServerView]) -> list[Finding]:
    """Return what the name servers say differently of brokers and topics; one finding that they agree if nothing."""
    found = [
        finding
        for first, second in pairwise(views)
        for finding in (_other_brokers(first, second), _other_topics(first, second))
        if finding is not None
    ]
    if found or not views:
        return found
    names = tuple(view.address for view in views)
    brokers = len({name for view in views for name, _ in view.places})
    text = f"{listed(names)} {'answer and agree' if len(names) > 1 else 'answers'}: {brokers} broker(s)"
    return [Finding(severity=Severity.OK, check=CHECK, about=names, found=text)]


def _other_brokers(first: NameServerView, second: NameServerView) -> Finding | None:
    names = {name for (name, _), _ in first.places.items() ^ second.places.items()}
    if not names:
        return None
    return Finding(
        severity=Severity.WARNING,
        check=CHECK,
        about=tuple(sorted(names)),
        found=f"name servers {first.address} and {second.address} know different addresses of {listed(names)}",
        mend=f"set namesrvAddr={first.address};{second.address} in broker.conf of each of them, and restart it",
    )


def _other_topics(first: NameServerView, second: NameServerView) -> Finding | None:
    names = first.topics ^ second.topics
    # The topics that only a broker has which one of them does not know have the same cause.
    if not names or first.places != second.places:
        return None
    return Finding(
        severity=Severity.WARNING,
        check=CHECK,
        about=tuple(sorted(names)),
        found=f"only one of the name servers {first.address} and {second.address} knows {listed(names)}",
        mend=f"set namesrvAddr={first.address};{second.address} in broker.conf of each broker, and restart it; brokers "
        "register new topics within 30 seconds",
    )
