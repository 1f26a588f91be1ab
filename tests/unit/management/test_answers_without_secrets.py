"""Binders' reports about their systems are shown without passwords."""

from binders.inmemory.binder import InMemoryBinder
from streamkit.binder.binder import Binder, BinderContext, Health
from streamkit.errors import BinderError, BinderUnavailable
from tests.unit.application.test_management import STREAM, application, serving
from tests.unit.binder.test_late_binding import FlakyPlugin

AWAY = "amqp://me:hunter2@broker:5672 is away (password=hunter2)"


class Talkative(InMemoryBinder):
    async def start(self) -> None:
        raise BinderUnavailable(AWAY)

    async def health(self) -> Health:
        raise BinderError(AWAY)


class TalkativePlugin(FlakyPlugin):
    def create_binder(self, name: str, context: BinderContext) -> Binder:
        return Talkative(name, context)


def test_health_and_errors_show_no_password() -> None:
    """Of a system that is unavailable; its address stays readable."""
    settings = {f"{STREAM}.default-binder": "flaky", f"{STREAM}.inmemory.binder.stands-in-for": "inmemory"}
    app = application(plugins=[TalkativePlugin(up_at=0)], **settings)
    with serving(app) as client:
        health = client.get("/health")
        refused = client.post("/bindings/in", json={"state": "STARTED"})
    assert (health.status_code, refused.status_code) == (503, 503)
    for answer in (health, refused):
        assert "hunter2" not in answer.text
        assert "amqp://me:******@broker:5672 is away" in answer.text
