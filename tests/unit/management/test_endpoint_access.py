"""Which endpoints exist and which operations they allow: `enabled` and `access`, as in Spring Boot 3."""

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
def test_access_settings_restrict_operations(settings: dict[str, str], states: tuple[int, int]) -> None:
    """The endpoint's own overrides the default, and max-permitted limits both."""
    with serving(application(None, **settings)) as client:
        reported = client.get("/bindings/in").status_code
        changed = client.post("/bindings/in", json={"state": "STOPPED"}).status_code
        assert (reported, changed) == states
        assert ("bindings" in client.get("").json()["_links"]) == (reported == 200)


@pytest.mark.parametrize("name", ["health", "metrics", "prometheus"])
def test_each_endpoint_can_be_disabled(name: str) -> None:
    """Although the exposure is `*`."""
    with serving(application(None, **{f"{ENDPOINT}.{name}.enabled": "false"})) as client:
        assert client.get(f"/{name}").status_code == 404


@pytest.mark.parametrize(
    "settings",
    [
        {f"{ENDPOINT}.bindings.enabled": "true", f"{ENDPOINT}.bindings.access": "read-only"},
        {f"{ENDPOINTS}.enabled-by-default": "true", f"{ENDPOINTS}.access.default": "none"},
    ],
)
def test_old_and_new_access_setting_exclude_each_other(settings: dict[str, str]) -> None:
    """As in Spring Boot."""
    with pytest.raises(ConfigurationErrors, match="not both"), application(None, **settings):
        pass
