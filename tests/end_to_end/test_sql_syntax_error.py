"""A subscription with a syntax error is reported with its setting."""

from pathlib import Path

import pytest

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError

ROCKET = "spring.cloud.stream.rocketmq"

SETTINGS = """
spring.cloud.stream.default-binder=rocketmq
spring.cloud.stream.bindings.in.destination=orders
spring.cloud.stream.bindings.in.group=kitchen
spring.cloud.stream.rocketmq.binder.embedded=always
"""


@pytest.mark.parametrize(("key", "text"), [("sql", "size >"), ("subscription", "sql:size >")])
def test_syntax_error_of_a_subscription_names_its_setting(tmp_path: Path, key: str, text: str) -> None:
    """File, line and key, in either generation's spelling, with the broker's error."""
    setting = f"{ROCKET}.bindings.in.consumer.{key}"
    file = tmp_path / "application.properties"
    file.write_text(f"{SETTINGS}{ROCKET}.binder.embedded-store={tmp_path / 'store'}\n{setting}={text}\n")
    app = StreamApplication(config_location=file)
    app.stream_listener("in")(lambda order: None)
    with pytest.raises(ConfigurationError) as caught, app:
        pass
    assert f"application.properties:7: {setting}={text}: binding 'in': " in str(caught.value)
    assert caught.value.key == setting
    assert str(caught.value.origin).endswith("application.properties:7")
