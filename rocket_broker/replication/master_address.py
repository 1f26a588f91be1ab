"""The addresses of the master, which name servers tell each broker when it registers."""

import asyncio
import logging

from rocket_broker.settings.broker_settings import BrokerSettings

__all__ = ["MasterAddress"]

logger = logging.getLogger(__name__)


class MasterAddress:
    """The addresses of the master, which a slave learns from name servers.

    Attributes:
        clients: The master's address for clients; empty while it is not known.
        slaves: The master's address for slaves.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.clients = ""
        self.slaves = settings.ha_master_address
        self._fixed = bool(settings.ha_master_address)
        self._known = asyncio.Event()

    def update(self, clients: str | None, slaves: str | None) -> None:
        """Set the addresses that a name server has sent; do nothing if one is missing: the master is not registered."""
        if not clients or not (slaves or self._fixed):
            return
        if not self._fixed and slaves:
            self.slaves = slaves
        if clients != self.clients:
            logger.info("the master is at %s, and accepts slaves at %s", clients, self.slaves)
        self.clients = clients
        self._known.set()

    async def known(self) -> None:
        """Return as soon as the addresses are known."""
        await self._known.wait()
