"""An input without a group is logged at the start, with the setting that may have been meant for it."""

import logging

import pytest

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError

PREFIX = "spring.cloud.stream.bindings"


def group_messages(
    caplog: pytest.LogCaptureFixture, *bindings: str, outputs: str = "", **groups: str
) -> list[tuple[str, str]]:
    """Start an application with these inputs and groups; return log messages about groups with their levels."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={f"{PREFIX}.{name}.destination": "topic" for name in bindings}
        | {f"{PREFIX}.{name}.group": group for name, group in groups.items()}
        | {"spring.cloud.stream.output-bindings": outputs},
    )
    for name in bindings:
        app.stream_listener(name)(lambda text: None)
    with caplog.at_level(logging.INFO, "streamkit.assembly.anonymous_groups"), app.test():
        pass
    return [(each.levelname, each.getMessage()) for each in caplog.records if "group" in each.name]


def test_input_with_a_group_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """In any spelling of the binding's name."""
    assert group_messages(caplog, "ordersIn", **{"orders-in": "billing"}) == []


def test_anonymous_input_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever groups other inputs have."""
    ((level, text),) = group_messages(caplog, "orders", "orders2", receipts="log", orders2="log")
    assert level == "INFO"
    assert text == (
        "Binding 'orders' has no group: it receives only messages that are sent from now on, "
        "and shares them with no other consumer"
    )


def test_misspelt_binding_of_a_group_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """If the name nearly equals that of a binding of the application."""
    with pytest.raises(ConfigurationError, match=r"there is no binding 'order'; did you mean 'orders'\?") as caught:
        group_messages(caplog, "orders", order="billing")
    assert caught.value.suggestion == f"{PREFIX}.orders.group"


@pytest.mark.parametrize("other", ["orders-3", "orders", "ORDERS_2"])
def test_binding_with_another_number_is_not_a_misspelling(caplog: pytest.LogCaptureFixture, other: str) -> None:
    """This application need not have it."""
    assert [level for level, _ in group_messages(caplog, "orders-1", **{other: "billing"})] == ["INFO"]
