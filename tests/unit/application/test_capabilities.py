"""Settings that need a capability the binder lacks are reported with their lines."""

from pathlib import Path

import pytest

from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationErrors, UnsupportedCapability

SETTINGS = """
spring.cloud.stream.default-binder=inmemory
spring.cloud.stream.bindings.a.group=g
spring.cloud.stream.rocketmq.bindings.a.consumer.sql=colour = 'red'
"""


def start(directory: Path, settings: str, *bindings: str) -> None:
    """Start an application with listeners on these bindings."""
    file = directory / "application.properties"
    file.write_text(settings)
    app = StreamApplication(config_location=file)
    for binding in bindings:
        app.stream_listener(binding)(lambda: None)
    with app:
        pass


def test_missing_capability_error_names_setting_and_binder(tmp_path: Path) -> None:
    """File, line, setting, and the binder with its capabilities."""
    with pytest.raises(UnsupportedCapability) as caught:
        start(tmp_path, SETTINGS, "a")
    text = str(caught.value)
    assert "application.properties:4: spring.cloud.stream.rocketmq.bindings.a.consumer.sql=colour = 'red'" in text
    assert "asks for sql, which binder 'inmemory' of type 'inmemory' cannot do; it can: batch, broadcast," in text
    assert caught.value.key == "spring.cloud.stream.rocketmq.bindings.a.consumer.sql"
    assert str(caught.value.origin).endswith("application.properties:4")


def test_all_missing_capabilities_are_reported_together(tmp_path: Path) -> None:
    """For every binding in one report; the second generation's spelling too."""
    more = "spring.cloud.stream.bindings.b.group=g\n"
    more += "spring.cloud.stream.rocketmq.bindings.b.consumer.subscription=sql:size > 1\n"
    with pytest.raises(ConfigurationErrors) as caught:
        start(tmp_path, SETTINGS + more, "a", "b")
    assert len(caught.value.errors) == 2
    assert "application.properties:6: spring.cloud.stream.rocketmq.bindings.b.consumer.subscription" in str(
        caught.value
    )


def test_missing_capability_of_a_default_setting_names_the_default(tmp_path: Path) -> None:
    """As it was written."""
    settings = SETTINGS.replace("bindings.a.consumer.sql", "default.consumer.sql")
    with pytest.raises(UnsupportedCapability, match=r"rocketmq\.default\.consumer\.sql=colour"):
        start(tmp_path, settings, "a")
