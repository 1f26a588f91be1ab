"""The overview: brokers, rates, disks and lag, with charts that go on while the page is open."""

from typing import Final

from starlette.responses import Response

from rocket_admin.cluster import overview
from rocket_console.live.chart import Line, line_chart
from rocket_console.live.cluster_watch import EVERY, ClusterWatch
from rocket_console.live.picture import picture
from rocket_console.pages.broker_table import BROKERS
from rocket_console.pages.section import Page
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import with_query
from rocket_console.rendering.formats import Format

__all__ = ["PAGES"]

_LIVE: Final = "/overview/live"


async def _show(visit: Visit) -> Response:
    visit.watch.keep_fresh()
    found = await overview(visit.admin)
    return visit.page(
        "overview.html",
        title="Overview",
        tables=[visit.table(BROKERS, found.brokers)],
        failures=found.failures,
        overview=found,
        charts=_charts(visit.watch),
        picture=picture(visit.bindings, visit.watch.looks.values()),
        watch=visit.watch,
        live_address=with_query(_LIVE, visit.query),
        every=EVERY,
    )


async def _live(visit: Visit) -> Response:
    await visit.watch.first_sample()
    brokers = visit.watch.brokers
    view = visit.table(BROKERS, () if brokers is None else brokers.brokers, path="/")
    return visit.fragment(
        "overview_live.html",
        brokers=view,
        charts=_charts(visit.watch),
        picture=picture(visit.bindings, visit.watch.looks.values()),
        watch=visit.watch,
    )


def _charts(watch: ClusterWatch) -> dict[str, object]:
    sends, deliveries = Line("Stored", watch.sends.points), Line("Delivered", watch.deliveries.points)
    return {
        "rates": line_chart("Messages per second", [sends, deliveries]),
        "lag": line_chart("Messages to consume", [Line("Lag of all groups", watch.lag.points)], Format.NUMBER),
    }


PAGES: Final = (Page(path="/", show=_show), Page(path=_LIVE, show=_live))
