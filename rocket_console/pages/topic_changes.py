"""What changes topics: create, send a message, change settings, delete."""

from typing import Final

from starlette.responses import Response

from rocket_admin.messages import CONTENT_TYPE, send_message
from rocket_admin.topics import (
    create_topic,
    permission_bits,
    show_topic,
    topic_queues,
    update_topic,
)
from rocket_console.pages.fields import number_of, properties_of, required, text_or_none
from rocket_console.pages.section import Action, Page
from rocket_console.pages.tabs import topic_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_remoting.wire.message import Message

__all__ = ["ACTIONS", "PAGES"]

_PERMISSIONS: Final = ("rw", "r", "w", "none")
_MAX_SEND: Final = 16 * 1024 * 1024
"""Bytes of a form with a message: a body of 4 MiB, each byte of which may take three."""


async def _new(visit: Visit) -> Response:
    brokers = sorted(await visit.admin.masters())
    return visit.page("topic_new.html", title="New topic", permissions=_PERMISSIONS, brokers=brokers)


async def _create(visit: Visit) -> Response:
    form, topic = visit.form, required(visit.form, "topic")
    await create_topic(
        visit.admin,
        topic,
        queues=number_of(form, "queues") or 0,
        read_queues=number_of(form, "read_queues"),
        perm=_permission(form.get("permission", "rw")),
        order="order" in form,
        message_type=text_or_none(form, "type"),
        brokers=form.get("brokers", "").splitlines(),
    )
    return visit.done(address("topics", topic))


def _permission(text: str) -> int:
    if text not in _PERMISSIONS:
        raise ValueError(f"the field permission is {text!r}: expected one of {', '.join(_PERMISSIONS)}")
    return permission_bits(text)


async def _send_form(visit: Visit) -> Response:
    topic = visit.name("topic")
    await visit.admin.topic_route(topic)
    return visit.page("topic_send.html", title=f"Topic {topic}", topic_name=topic, tabs=topic_tabs(topic, "send"))


async def _send(visit: Visit) -> Response:
    topic, form = visit.name("topic"), visit.form
    properties = properties_of(form.get("properties", ""))
    if content_type := text_or_none(form, "content_type"):
        properties[CONTENT_TYPE] = content_type
    message = Message(
        topic,
        form.get("body", "").replace("\r\n", "\n").encode(),
        tags=text_or_none(form, "tags"),
        keys=text_or_none(form, "keys"),
        properties=properties,
    )
    await send_message(visit.admin, message, queue_id=number_of(form, "queue"))
    return visit.done(address("topics", topic, "messages"))


async def _settings(visit: Visit) -> Response:
    topic = visit.name("topic")
    found = await show_topic(visit.admin, topic)
    return visit.page(
        "topic_settings.html",
        title=f"Topic {topic}",
        failures=found.failures,
        topic=found,
        permissions=_PERMISSIONS,
        tabs=topic_tabs(topic, "settings"),
    )


async def _change(visit: Visit) -> Response:
    topic, form = visit.name("topic"), visit.form
    queues, read_queues = number_of(form, "queues"), number_of(form, "read_queues")
    permission = text_or_none(form, "permission")
    brokers = form.get("brokers", "").splitlines()
    readable = queues if read_queues is None else read_queues
    if readable is not None and "sure" not in form:
        found = await topic_queues(visit.admin, topic)
        concerned = (queue for queue in found.queues if not brokers or queue.broker in brokers)
        left = sum(queue.messages for queue in concerned if queue.queue >= readable)
        if left:
            raise ValueError(
                f"nobody could read {left:,} message(s) of {topic} any more: wait until they are "
                "consumed, or tick that you are sure"
            )
    perm = None if permission is None else _permission(permission)
    await update_topic(visit.admin, topic, queues=queues, read_queues=read_queues, perm=perm, brokers=brokers)
    return visit.done(address("topics", topic))


async def _delete_form(visit: Visit) -> Response:
    topic = visit.name("topic")
    found = await show_topic(visit.admin, topic)
    return visit.page(
        "topic_delete.html",
        title=f"Topic {topic}",
        failures=found.failures,
        topic=found,
        tabs=topic_tabs(topic, "delete"),
    )


async def _delete(visit: Visit) -> Response:
    topic = visit.name("topic")
    if visit.form.get("confirmed", "").strip() != topic:
        raise ValueError(f"nothing was deleted: write the name of the topic, {topic}, to confirm")
    await visit.admin.topic_route(topic)
    await visit.admin.delete_topic(topic)
    return visit.done(address("topics"))


PAGES: Final = (
    Page(path="/new-topic", show=_new),
    Page(path="/topics/{topic}/send", show=_send_form),
    Page(path="/topics/{topic}/settings", show=_settings),
    Page(path="/topics/{topic}/delete", show=_delete_form),
)
_SETTINGS: Final = ("queues", "read_queues", "permission", "brokers")
ACTIONS: Final = (
    Action(
        path="/new-topic",
        name="topic.create",
        done="The topic was created.",
        act=_create,
        recorded=("topic", *_SETTINGS, "order", "type"),
    ),
    Action(
        path="/topics/{topic}/send",
        name="message.send",
        done="The message was sent.",
        act=_send,
        recorded=("tags", "keys", "queue"),
        measured=("properties", "body"),
        max_form=_MAX_SEND,
    ),
    Action(
        path="/topics/{topic}/settings",
        name="topic.update",
        done="The settings were changed.",
        act=_change,
        recorded=(*_SETTINGS, "sure"),
    ),
    Action(path="/topics/{topic}/delete", name="topic.delete", done="The topic was deleted.", act=_delete),
)
