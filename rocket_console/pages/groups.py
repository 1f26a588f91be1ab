"""The page of all groups.

Members and lag take two requests for each group. So those of the rows on the page are asked now, and a table that is
sorted or filtered by them uses the last look at each group; groups without one are asked first, for a short time.
"""

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from rocket_admin.groups import group_names
from rocket_console.live.group_looks import GroupLook
from rocket_console.pages.section import Page
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table

__all__ = ["PAGES"]

_WITHIN: Final = 0.6
"""Seconds in which groups are asked before the page is shown with what is known."""


def _lag_mark(group: GroupLook) -> str | None:
    return "warn" if group.lag and not group.members else None


_GROUPS: Final[Table[GroupLook]] = Table(
    name="groups",
    caption="All groups",
    order="group",
    empty="There is no group yet. Start an application that consumes, or create a group.",
    columns=(
        Column(
            name="group",
            title="Group",
            value=lambda group: group.group,
            link=lambda group: address("groups", group.group),
        ),
        Column(
            name="members",
            title="Members",
            value=lambda group: None if group.members is None else len(group.members),
            format=Format.NUMBER,
        ),
        Column(name="lag", title="Lag", value=lambda group: group.lag, format=Format.NUMBER, mark=_lag_mark),
        Column(name="model", title="Model", value=lambda group: group.model, is_choice=True),
        Column(name="topics", title="Topics", value=lambda group: group.topics or None),
        Column(
            name="kind", title="Kind", value=lambda group: "system" if group.is_system else "normal", is_choice=True
        ),
    ),
)
_OF_NAMES: Final = ("group", "kind")


async def _show(visit: Visit) -> Response:
    found = await group_names(visit.admin, with_system=True)
    view = visit.table(_GROUPS, _known(visit, found.names))
    state = view.state
    by_names = state.order.removeprefix("-") in _OF_NAMES and not state.text and "model" not in state.choices
    if not by_names or "export" in visit.query:
        missing = [name for name in found.names if name not in visit.watch.looks]
        await visit.watch.look_at(missing, within=_WITHIN)
        view = visit.table(_GROUPS, _known(visit, found.names))
    looks = await visit.watch.look_at([group.group for group in view.shown], within=_WITHIN)
    view.shown = [looks.get(group.group, group) for group in view.shown]
    return visit.page("groups.html", title="Groups", tables=[view], failures=found.failures)


def _known(visit: Visit, names: Sequence[str]) -> list[GroupLook]:
    return [visit.watch.looks.get(name) or GroupLook.unknown(name) for name in names]


PAGES: Final = (Page(path="/groups", show=_show),)
