"""What changes groups: create, reset offsets, change settings, delete."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from rocket_admin.groups import create_group, show_group, update_group
from rocket_admin.offsets import End, Move, MovePlan, Target, apply_plan, plan_move
from rocket_admin.targets import TARGET_FORMS, target_of
from rocket_admin.times import iso_text
from rocket_console.pages.fields import number_of, required, text_or_none
from rocket_console.pages.section import Action, Page
from rocket_console.pages.tabs import group_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table

__all__ = ["ACTIONS", "PAGES"]

_MOVES: Final[Table[Move]] = Table(
    name="moves",
    caption="What would happen",
    empty="The topics have no queue.",
    columns=(
        Column(
            name="topic", title="Topic", value=lambda move: move.topic, link=lambda move: address("topics", move.topic)
        ),
        Column(name="broker", title="Broker", value=lambda move: move.broker),
        Column(name="queue", title="Queue", value=lambda move: move.queue, format=Format.NUMBER),
        Column(name="from", title="From", value=lambda move: move.committed, format=Format.NUMBER),
        Column(name="to", title="To", value=lambda move: move.target, format=Format.NUMBER),
        Column(name="again", title="Delivered again", value=lambda move: move.again, format=Format.NUMBER),
        Column(
            name="skipped",
            title="Skipped",
            value=lambda move: move.skipped,
            format=Format.NUMBER,
            mark=lambda move: "bad" if move.skipped else None,
        ),
    ),
)
_FLAGS: Final = {
    "consume": "consume_enable",
    "broadcast": "consume_broadcast_enable",
    "ordered": "consume_message_orderly",
}
_CHOICES: Final = {"yes": True, "no": False}


async def _new(visit: Visit) -> Response:
    return visit.page("group_new.html", title="New group")


async def _create(visit: Visit) -> Response:
    group = required(visit.form, "group")
    await create_group(visit.admin, group, changes=_changes(visit.form))
    return visit.done(address("groups", group))


def _changes(form: Mapping[str, str]) -> dict[str, object]:
    numbers = {
        "retry_max_times": number_of(form, "retries", least=-1),
        "retry_queue_nums": number_of(form, "retry_queues"),
    }
    found: dict[str, object] = {name: number for name, number in numbers.items() if number is not None}
    for name, setting in _FLAGS.items():
        choice = text_or_none(form, name)
        if choice is not None:
            if choice not in _CHOICES:
                raise ValueError(f"the field {name} is {choice!r}: expected yes or no")
            found[setting] = _CHOICES[choice]
    return found


async def _settings(visit: Visit) -> Response:
    group = visit.name("group")
    found = await show_group(visit.admin, group)
    return visit.page(
        "group_settings.html",
        title=f"Group {group}",
        failures=found.failures,
        group=found,
        tabs=group_tabs(group, "settings"),
    )


async def _change(visit: Visit) -> Response:
    group, changes = visit.name("group"), _changes(visit.form)
    if not changes:
        raise ValueError("nothing was changed: fill in a field")
    await update_group(visit.admin, group, changes=changes)
    return visit.done(address("groups", group))


async def _reset_form(visit: Visit) -> Response:
    group, to, topics = visit.name("group"), visit.query.get("to", "").strip(), _topics(visit.query)
    found = await show_group(visit.admin, group)
    plan, target = None, ""
    if to:
        # The plan is carried out for the time that is meant now, not for "30 minutes ago" at a later time.
        target = _written(target_of(to))
        plan = await plan_move(visit.admin, group, target_of(target), topics=topics)
    return visit.page(
        "group_reset.html",
        title=f"Group {group}",
        tables=() if plan is None else [visit.table(_MOVES, plan.moves)],
        failures=found.failures,
        group=found,
        plan=plan,
        refusal="" if plan is None else _refusal(plan),
        to=to,
        target=target,
        topics="\n".join(topics),
        known=[each.topic for each in found.topics],
        forms=TARGET_FORMS,
        tabs=group_tabs(group, "reset"),
    )


def _topics(fields: Mapping[str, str]) -> list[str]:
    return fields.get("topics", "").replace(",", " ").split()


def _written(target: Target) -> str:
    if isinstance(target, End):
        return target.value
    return str(target) if isinstance(target, int) else iso_text(target)


def _refusal(plan: MovePlan) -> str:
    """Return why the plan cannot be carried out; empty if it can."""
    if plan.members and isinstance(plan.target, int):
        return (
            f"The group has {plan.members} connected member(s), which would overwrite offsets that are set to a "
            "number. Stop them, or move the group to a time."
        )
    return ""


async def _reset(visit: Visit) -> Response:
    group = visit.name("group")
    plan = await plan_move(visit.admin, group, target_of(required(visit.form, "target")), topics=_topics(visit.form))
    await apply_plan(visit.admin, plan)
    return visit.done(address("groups", group))


async def _delete_form(visit: Visit) -> Response:
    group = visit.name("group")
    found = await show_group(visit.admin, group)
    return visit.page(
        "group_delete.html",
        title=f"Group {group}",
        failures=found.failures,
        group=found,
        tabs=group_tabs(group, "delete"),
    )


async def _delete(visit: Visit) -> Response:
    group = visit.name("group")
    if visit.form.get("confirmed", "").strip() != group:
        raise ValueError(f"nothing was deleted: write the name of the group, {group}, to confirm")
    found = await show_group(visit.admin, group)
    if found.members:
        raise ValueError(
            f"nothing was deleted: the group has {found.members} connected member(s), which would make it again; stop "
            "them first"
        )
    await visit.admin.delete_group(group)
    return visit.done(address("groups"))


PAGES: Final = (
    Page(path="/new-group", show=_new),
    Page(path="/groups/{group}/settings", show=_settings),
    Page(path="/groups/{group}/reset", show=_reset_form),
    Page(path="/groups/{group}/delete", show=_delete_form),
)
_SETTINGS: Final = ("retries", "retry_queues", *_FLAGS)
ACTIONS: Final = (
    Action(
        path="/new-group",
        name="group.create",
        done="The group was created.",
        act=_create,
        recorded=("group", *_SETTINGS),
    ),
    Action(
        path="/groups/{group}/settings",
        name="group.update",
        done="The settings were changed.",
        act=_change,
        recorded=_SETTINGS,
    ),
    Action(
        path="/groups/{group}/reset",
        name="group.reset",
        done="The group was moved.",
        act=_reset,
        recorded=("target", "topics"),
    ),
    Action(path="/groups/{group}/delete", name="group.delete", done="The group was deleted.", act=_delete),
)
