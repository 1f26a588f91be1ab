"""Which endpoints there are, and what may be done by them: `enabled` and `access`, as in Spring Boot 3."""

import pytest

from streamkit.errors import ConfigurationErrors
from tests.unit.application.test_management import application, serving

ENDPOINT = "management.endpoint"
ENDPOINTS = "management.endpoints"


@pytest.mark.parametrize(
    ("settings", "states"),
    [
        ({}, (200, 204)),
        ({f"{ENDPOINT}.bindings.enabled": "true"}, (200, 204)),
        ({f"{ENDPOINT}.bindings.enabled": "false"}, (404, 404)),
        ({f"{ENDPOINT}.bindings.access": "none"}, (404, 404)),
        ({f"{ENDPOINT}.bindings.access": "read-only"}, (200, 405)),
        ({f"{ENDPOINT}.bindings.access": "READ_ONLY"}, (200, 405)),
        ({f"{ENDPOINT}.bindings.access": "unrestricted"}, (200, 204)),
        ({f"{ENDPOINTS}.enabled-by-default": "false"}, (404, 404)),
        (
            {f"{ENDPOINTS}.enabled-by-default": "false", f"{ENDPOINT}.bindings.enabled": "true"},
            (200, 204),
        ),
        ({f"{ENDPOINTS}.access.default": "read-only"}, (200, 405)),
        ({f"{ENDPOINTS}.access.default": "none", f"{ENDPOINT}.bindings.access": "read-only"}, (200, 405)),
        (
            {f"{ENDPOINTS}.access.max-permitted": "read-only", f"{ENDPOINT}.bindings.access": "unrestricted"},
            (200, 405),
        ),
        ({f"{ENDPOINTS}.access.max-permitted": "none"}, (404, 404)),
    ],
)
def test_bindings_can_be_looked_at_and_changed_where_settings_say_so(
    settings: dict[str, str], states: tuple[int, int]
) -> None:
    """The endpoint's own setting wins over that of all, and the most that is permitted over both."""
    with serving(application(None, **settings)) as client:
        told = client.get("/bindings/in").status_code
        changed = client.post("/bindings/in", json={"state": "STOPPED"}).status_code
        assert (told, changed) == states
        assert ("bindings" in client.get("").json()["_links"]) == (told == 200)


@pytest.mark.parametrize("name", ["health", "metrics", "prometheus"])
def test_each_endpoint_can_be_turned_off(name: str) -> None:
    """Though the exposure says `*`."""
    with serving(application(None, **{f"{ENDPOINT}.{name}.enabled": "false"})) as client:
        assert client.get(f"/{name}").status_code == 404


@pytest.mark.parametrize(
    "settings",
    [
        {f"{ENDPOINT}.bindings.enabled": "true", f"{ENDPOINT}.bindings.access": "read-only"},
        {f"{ENDPOINTS}.enabled-by-default": "true", f"{ENDPOINTS}.access.default": "none"},
    ],
)
def test_the_old_and_the_new_setting_exclude_each_other(settings: dict[str, str]) -> None:
    """As in Spring Boot: nobody knows which of them is meant."""
    with pytest.raises(ConfigurationErrors, match="not both"), application(None, **settings):
        pass
