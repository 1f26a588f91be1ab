"""Requests about brokers: their settings and their permission to be written to."""

from collections.abc import Mapping

from rocket_client.admin.requests import AdminRequests
from rocket_remoting.wire.bodies import BrokerStatsData, KVTable, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    ViewBrokerStatsDataRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

__all__ = ["BrokerAdminRequests"]


class BrokerAdminRequests(AdminRequests):
    """Requests about brokers."""

    async def broker_settings(self) -> dict[str, dict[str, str]]:
        """Return the effective settings of each master by broker name; setting names are those of ``broker.conf``.

        Raises:
            NoBrokerError: No master is registered.
            ResponseError: A broker does not show its settings to this client.
        """
        return {name: await self.broker_config(address) for name, address in (await self.masters()).items()}

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return the effective settings of the broker at an address by their names in ``broker.conf``."""
        self._life.require_running()
        response = await self._client.requests.invoke(address, RequestCode.GET_BROKER_CONFIG)
        lines = bytes(response.body).decode(errors="replace").splitlines()
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, _, value in pairs}

    async def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of the broker at an address while it runs; their names are those of ``broker.conf``.

        Raises:
            ValueError: A name or a value has a line break.
            ResponseError: The broker does not change one of them; the bundled one then has changed none.
        """
        self._life.require_running()
        for name, value in settings.items():
            if len(f"{name}={value}".splitlines()) > 1:
                raise ValueError(f"setting {name!r} has a line break")
        pairs = ((name, value.replace("\\", "\\\\")) for name, value in settings.items())
        body = "".join(f"{name}={value}\n" for name, value in pairs).encode()
        await self._client.requests.invoke(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return the figures of the broker at an address, by Apache's names."""
        self._life.require_running()
        response = await self._client.requests.invoke(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return decode_body(response.body, KVTable).table

    async def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData | None:
        """Return a counter of the broker at an address over the last minute, hour and day.

        Args:
            address: The broker's address.
            name: The counter, such as ``TOPIC_PUT_NUMS``.
            key: What is counted, such as a topic, or ``topic@group``.

        Returns:
            The counter; None if the broker has counted nothing since its start.
        """
        self._life.require_running()
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        try:
            response = await self._client.requests.invoke(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except ResponseError as error:
            if error.code == ResponseCode.SYSTEM_ERROR and (error.remark or "").endswith("not exist"):
                return None
            raise
        return decode_body(response.body, BrokerStatsData)

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the broker's write permission from all routes; return the number of its topics.

        Producers stop choosing the broker when they next refresh their routes. The broker itself still accepts
        messages, and consumers continue. A restart of the broker restores the permission, and so do a change or the
        creation of a topic, for that topic.
        """
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._invoke_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count for answer in answers)

    async def add_write_perm(self, broker_name: str) -> int:
        """Restore the broker's write permission in all routes; return the number of its topics."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._invoke_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count for answer in answers)
