"""The addresses of the master, which name servers tell each broker when it registers."""

import asyncio
import logging

from rocket_broker.settings.broker_settings import BrokerSettings

__all__ = ["MasterAddress"]

logger = logging.getLogger(__name__)


class MasterAddress:
    """The addresses of the master, as name servers tell them to the slave.

    Attributes:
        clients: The master's address for clients; empty while it is not known.
        slaves: The master's address for slaves.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.clients = ""
        self.slaves = settings.ha_master_address
        self._fixed = bool(settings.ha_master_address)
        self._known = asyncio.Event()

    def told(self, clients: str | None, slaves: str | None) -> None:
        """Take over what a name server has told; it tells nothing while the master is not registered."""
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
