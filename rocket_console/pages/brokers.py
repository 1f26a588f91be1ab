"""The page of all brokers, and that of one with the figures that it reports."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from rocket_admin.brokers import list_brokers, show_broker
from rocket_console.pages.broker_table import BROKERS
from rocket_console.pages.named_values import NamedValue, named_values
from rocket_console.pages.section import Page
from rocket_console.pages.visit import Visit
from rocket_remoting import ResponseError

__all__ = ["PAGES", "shown_settings"]

_SECRET: Final = re.compile("password|secret|credential|authenticationuser|token", re.IGNORECASE)
_HIDDEN: Final = "******"


_FIGURES: Final = named_values(
    "figures",
    "What the master reports about itself",
    empty="The broker reports no figures.",
    name_title="Figure",
)
_SETTINGS: Final = named_values(
    "settings", "Settings of the master", empty="The broker does not show its settings.", name_title="Setting"
)


async def _show_all(visit: Visit) -> Response:
    found = await list_brokers(visit.admin)
    view = visit.table(BROKERS, found.brokers)
    return visit.page("brokers.html", title="Brokers", tables=[view], failures=found.failures)


async def _show(visit: Visit) -> Response:
    name, table = visit.name("broker"), (await visit.admin.cluster_info()).broker_addr_table
    if name not in table:
        raise HTTPException(404, f"no broker {name} is registered")
    addresses = table[name].broker_addrs
    if 0 not in addresses:
        raise HTTPException(
            404, f"no master of broker {name} is registered; its slaves: {', '.join(addresses.values())}"
        )
    figures = await show_broker(visit.admin, name)
    settings: Mapping[str, str] = {}
    refusal = ""
    try:
        settings = shown_settings(await visit.admin.broker_config(addresses[0]))
    except ResponseError as error:  # an account may see a broker and not its settings
        refusal = str(error)
    return visit.page(
        "broker.html",
        title=f"Broker {name}",
        tables=[visit.table(_FIGURES, _rows(figures)), visit.table(_SETTINGS, _rows(settings))],
        broker=name,
        cluster=table[name].cluster,
        addresses=addresses,
        facts=figures,
        refusal=refusal,
    )


def shown_settings(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return settings with what seems a secret hidden: Apache's brokers of 5.x return passwords as they are."""
    return {name: _HIDDEN if value and _SECRET.search(name) else value for name, value in settings.items()}


def _rows(pairs: Mapping[str, str]) -> Sequence[NamedValue]:
    return [NamedValue(name=name, value=value) for name, value in pairs.items()]


PAGES: Final = (Page(path="/brokers", show=_show_all), Page(path="/brokers/{broker}", show=_show))
