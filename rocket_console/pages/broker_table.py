"""The table of brokers, on the overview and on the page of brokers."""

from typing import Final

from rocket_admin.brokers import Broker
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table

__all__ = ["BROKERS"]

_NEARLY_FULL: Final = 0.75
"""The share of a disk from which on brokers delete old messages early."""
_FULL: Final = 0.9
"""The share from which on brokers refuse messages."""


def _disk_mark(broker: Broker) -> str | None:
    if broker.disk_used is None or broker.disk_used < _NEARLY_FULL:
        return None
    return "bad" if broker.disk_used >= _FULL else "warn"


BROKERS: Final[Table[Broker]] = Table(
    name="brokers",
    caption="Brokers",
    order="broker",
    empty="No broker is registered. Start one with this name server, such as `streamkit broker --name-server …`.",
    columns=(
        Column(
            name="broker",
            title="Broker",
            value=lambda broker: broker.broker,
            link=lambda broker: address("brokers", broker.broker),
        ),
        Column(
            name="role",
            title="Role",
            value=lambda broker: "master" if broker.broker_id == 0 else f"slave {broker.broker_id}",
            is_choice=True,
        ),
        Column(name="cluster", title="Cluster", value=lambda broker: broker.cluster, is_choice=True),
        Column(name="address", title="Address", value=lambda broker: broker.address),
        Column(
            name="version",
            title="Version",
            value=lambda broker: broker.version or "does not answer",
            mark=lambda broker: None if broker.version is not None else "bad",
        ),
        Column(name="started", title="Started (UTC)", value=lambda broker: broker.started, format=Format.TIME),
        Column(name="stored", title="Stored/s", value=lambda broker: broker.sends_per_second, format=Format.RATE),
        Column(
            name="delivered", title="Delivered/s", value=lambda broker: broker.deliveries_per_second, format=Format.RATE
        ),
        Column(
            name="disk", title="Disk used", value=lambda broker: broker.disk_used, format=Format.SHARE, mark=_disk_mark
        ),
    ),
)
