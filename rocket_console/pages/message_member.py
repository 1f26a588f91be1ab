"""The page that sends a message to one member of a group, whose listener handles it at once, and shows the outcome."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.responses import Response

from rocket_admin.messages import origin_topic
from rocket_admin.subscribers import groups_of_topic
from rocket_admin.versions import version_text
from rocket_client import Admin
from rocket_console.pages.fields import required
from rocket_console.pages.message import record_of
from rocket_console.pages.section import Action, Page
from rocket_console.pages.tabs import message_tabs
from rocket_console.pages.visit import Visit
from rocket_remoting.wire.bodies import ConsumeMessageDirectlyResult, ConsumeMessageResult
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.topics import DLQ_PREFIX, is_dead_letter_topic, is_system_group

__all__ = ["ACTIONS", "PAGES"]

_MOST_GROUPS: Final = 100
"""Groups whose members are listed."""
_OUTCOMES: Final = {
    ConsumeMessageResult.CR_SUCCESS: "The listener has handled the message.",
    ConsumeMessageResult.CR_COMMIT: "The listener has handled the message.",
    ConsumeMessageResult.CR_LATER: "The listener asked for a redelivery, which is not made here.",
    ConsumeMessageResult.CR_ROLLBACK: "The listener asked for a roll-back.",
    ConsumeMessageResult.CR_THROW_EXCEPTION: "The listener has failed.",
    ConsumeMessageResult.CR_RETURN_NULL: "The listener has returned no outcome.",
}


@dataclass(frozen=True, kw_only=True)
class _Member:
    """A member that is connected to the broker of the message.

    Attributes:
        group: Its group.
        client_id: Its id.
        text: What the list shows of it.
    """

    group: str
    client_id: str
    text: str

    @property
    def value(self) -> str:
        """What the form sends."""
        return msgspec.json.encode((self.group, self.client_id)).decode()


async def _form(visit: Visit) -> Response:
    return await _page(visit, await record_of(visit))


async def _page(
    visit: Visit,
    record: MessageExt,
    *,
    chosen: str = "",
    outcome: ConsumeMessageDirectlyResult | None = None,
) -> Response:
    members = await _members(visit.admin, record)
    sentence = None if outcome is None or outcome.consume_result is None else _OUTCOMES.get(outcome.consume_result)
    return visit.page(
        "message_member.html",
        title=f"Message {record.msg_id}",
        message_id=record.offset_message_id,
        broker=record.broker_name,
        members=members,
        chosen=chosen,
        outcome=outcome,
        sentence=sentence or "The member has answered.",
        has_succeeded=outcome is not None
        and outcome.consume_result in (ConsumeMessageResult.CR_SUCCESS, ConsumeMessageResult.CR_COMMIT),
        tabs=message_tabs(record.offset_message_id, "member"),
    )


async def _members(admin: Admin, record: MessageExt) -> Sequence[_Member]:
    """Return the members of the groups that consume the message's topic, which are connected to its broker."""
    address = (await admin.masters()).get(record.broker_name)
    if address is None:
        return []
    groups = await groups_of_topic(admin, address, origin_topic(record))
    if is_dead_letter_topic(record.topic):
        groups.add(record.topic.removeprefix(DLQ_PREFIX))
    named = sorted(group for group in groups if not is_system_group(group))[:_MOST_GROUPS]
    found = await asyncio.gather(*(admin.members_at(address, group) for group in named))
    return [
        _Member(
            group=group,
            client_id=each.client_id,
            text=f"{group}: {each.client_id} at {each.client_addr} ({each.language} {version_text(each.version)})",
        )
        for group, connections in zip(named, found, strict=True)
        if connections is not None
        for each in connections.connection_set
    ]


async def _send(visit: Visit) -> Response:
    record, chosen = await record_of(visit), required(visit.form, "member")
    try:
        group, client_id = msgspec.json.decode(chosen, type=tuple[str, str])
    except msgspec.DecodeError:
        raise ValueError(f"the field member is {chosen[:50]!r}: choose one of the list") from None
    outcome = await visit.admin.consume_directly(record.offset_message_id, group, client_id, topic=record.topic)
    # Nothing is kept of the outcome: it is in the answer to the form.
    return await _page(visit, record, chosen=chosen, outcome=outcome)


PAGES: Final = (Page(path="/messages/{id}/member", show=_form),)
ACTIONS: Final = (
    Action(
        path="/messages/{id}/member",
        name="message.send-to-member",
        done="The member has handled the message.",
        act=_send,
        recorded=("member",),
    ),
)
