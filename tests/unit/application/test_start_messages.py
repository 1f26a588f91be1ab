"""What the log says of a start."""

import logging
from pathlib import Path

import pytest

from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError


async def take(payload: str) -> None:
    """A listener."""


def shop(tmp_path: Path, settings: str, *arguments: str) -> StreamApplication:
    (tmp_path / "application.yml").write_text(settings)
    return StreamApplication(config_location=f"{tmp_path}/", args=arguments)


def test_a_start_names_profiles_files_binders_and_groups(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In words; destinations only if they have other names, states only if they are not `running`."""
    app = shop(
        tmp_path,
        """
        spring.cloud.stream:
          binders: {near: {type: inmemory}, far: {type: inmemory}}
          default-binder: near
          bindings:
            orders: {destination: orders, group: kitchen}
            audit: {destination: "one,two", binder: far}
            late: {destination: late, group: g, consumer.auto-startup: false}
          output-bindings: receipts
        """,
        "--spring.profiles.active=a,b",
    )
    for name in ("orders", "audit", "late"):
        app.stream_listener(name)(take)
    (tmp_path / "application-a.yml").write_text("spring.cloud.stream.bindings.receipts.destination: paid")
    with caplog.at_level(logging.INFO), app.test():
        said = [record.getMessage() for record in caplog.records if record.name.startswith("streamkit.running")]
    settings, started = said
    (record,) = (each for each in caplog.records if each.getMessage() == started)
    fields = vars(record)
    assert (fields["application"], fields["profiles"]) == ("application", ["a", "b"])
    assert next(each for each in fields["bindings"] if each["binding"] == "orders") == {
        "binding": "orders",
        "kind": "input",
        "destination": "orders",
        "group": "kitchen",
        "binder": "near",
        "address": "",
        "state": "running",
    }
    assert settings == f"Profiles a, b, settings from {tmp_path}/application.yml, {tmp_path}/application-a.yml"
    assert started == (
        "Started: application (a, b); far: input audit (from one, two, no group); "
        "near: input orders (group kitchen), input late (group g, stopped), output receipts (to paid)"
    )


def test_an_unknown_binding_in_the_wrong_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where settings files were searched."""
    monkeypatch.chdir(tmp_path)
    app = StreamApplication()
    app.stream_listener("orders")(take)
    with pytest.raises(ConfigurationError, match=f"Known bindings: none .no settings file found in {tmp_path}, "):
        app.test().__enter__()
