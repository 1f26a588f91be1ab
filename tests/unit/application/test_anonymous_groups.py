"""An input without a group is told at the start, and which setting may have been meant for it."""

import logging

import pytest

from streamkit import StreamApplication

PREFIX = "spring.cloud.stream.bindings"


def told(caplog: pytest.LogCaptureFixture, *bindings: str, outputs: str = "", **groups: str) -> list[tuple[str, str]]:
    """Start an application with these inputs and groups; what is said of groups, with its level."""
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


def test_a_group_is_nothing_to_talk_about(caplog: pytest.LogCaptureFixture) -> None:
    """In any spelling of the binding's name."""
    assert told(caplog, "ordersIn", **{"orders-in": "billing"}) == []


def test_an_anonymous_input_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever groups others have."""
    ((level, text),) = told(caplog, "orders", "orders2", receipts="log", orders2="log")
    assert level == "INFO"
    assert text == (
        "Binding 'orders' has no group: it receives only messages that are sent from now on, "
        "and shares them with no other consumer"
    )


def test_a_misspelt_binding_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Only of a name that is nearly that of an input without a group."""
    (_, (level, text)) = told(caplog, "orders", order="billing")
    assert level == "WARNING"
    assert text == (
        f"{PREFIX}.order.group names no binding of this application: is it meant for 'orders', which has no group?"
    )


@pytest.mark.parametrize("other", ["orders-3", "orders", "ORDERS_2"])
def test_another_number_is_another_binding(caplog: pytest.LogCaptureFixture, other: str) -> None:
    """Which this application need not have."""
    assert [level for level, _ in told(caplog, "orders-1", **{other: "billing"})] == ["INFO"]


def test_an_output_s_group_is_no_misspelt_one(caplog: pytest.LogCaptureFixture) -> None:
    """It has no meaning there, and the binding is one of this application all the same."""
    names = told(caplog, "transactions-in-0", outputs="transactions-out-0", **{"transactions-out-0": "billing"})
    assert [level for level, _ in names] == ["INFO"]
