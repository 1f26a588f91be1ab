"""The binder that serves a binding."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from streamkit.application import StreamApplication
from streamkit.binder.registry import BinderRegistry
from streamkit.clock import SystemClock
from streamkit.config.environment import Environment
from streamkit.config.settings import StreamSettings
from streamkit.errors import ConfigurationError
from streamkit.plugins import hookimpl
from streamkit.plugins.application_plugins import ApplicationPlugins


def registry(**settings: str) -> BinderRegistry:
    """Return the binders of an application with these settings below `spring.cloud.stream`."""
    table = {f"spring.cloud.stream.{key.replace('__', '.')}": value for key, value in settings.items()}
    environment = Environment.load(config_location="optional:/none", variables={}, overrides=table)
    types = ApplicationPlugins().binder_types()
    return BinderRegistry(types, environment, StreamSettings.load(environment, types.names), SystemClock(), "test")


def test_default_binder_is_rocketmq() -> None:
    """The in-memory binder must be named."""
    assert registry().get(None).type == "rocketmq"


def test_default_binder_can_be_named() -> None:
    """By its type, if none is configured."""
    assert registry(default_binder="inmemory").get(None).type == "inmemory"


def test_bindings_share_a_binder_by_name() -> None:
    """Bindings share it."""
    binders = registry(default_binder="inmemory")
    assert binders.get(None) is binders.get("inmemory")


def test_binders_of_one_type_have_separate_environments() -> None:
    """binders.<name>.environment overrides the application's settings for that binder only."""
    own = "binders__east__environment__spring__cloud__stream__inmemory__binder__stands_in_for"
    binders = registry(
        binders__east__type="inmemory",
        binders__west__type="inmemory",
        inmemory__binder__stands_in_for="rocketmq",
        **{own: "inmemory"},
    )
    assert binders.get("east").extended_type == "inmemory"
    assert binders.get("west").extended_type == "rocketmq"


@pytest.mark.parametrize(
    ("settings", "name", "text"),
    [
        ({"binders__a__type": "inmemory", "binders__b__type": "inmemory"}, None, "default-binder"),
        ({"binders__east__type": "inmemory"}, "eest", "Did you mean 'east'"),
        ({"default_binder": "rocketmk"}, None, "Did you mean 'rocketmq'"),
        ({"binders__east__type": "inmemry"}, "east", "no binder type 'inmemry'.*Did you mean 'inmemory'"),
        (
            {"binders__east__type": "inmemory", "binders__east__default_candidate": "false"},
            None,
            "no binder can be the default",
        ),
    ],
)
def test_unknown_binder_error_lists_the_known_ones(settings: Mapping[str, str], name: str | None, text: str) -> None:
    """An ambiguous default, an unknown binder, an unknown type."""
    with pytest.raises(ConfigurationError, match=text):
        registry(**settings).get(name)


def test_binder_and_binding_errors_are_in_one_report() -> None:
    """Each with its key."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "inmemory",
            "spring.cloud.stream.inmemory.binder.partitions": "none",
            "spring.cloud.stream.output-bindings": "a",
        },
    )
    with pytest.raises(ConfigurationError, match=r"inmemory\.binder\.partitions=none"), app:
        pass


def test_plugin_that_cannot_be_loaded_is_always_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its type, module, package and error, whatever else fails the start."""
    (tmp_path / "broken_binder.py").write_text("import nonesuch_client")
    metadata = tmp_path / "broken_binder-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-binder\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[streamkit.binders]\nbroken = broken_binder\n")
    monkeypatch.syspath_prepend(tmp_path)
    types = ApplicationPlugins().binder_types()
    assert "broken" in types.names
    for _ in range(2):
        with pytest.raises(ConfigurationError) as raised:
            types.extended_models("broken")
        assert str(raised.value) == (
            "binder type 'broken', broken_binder of package broken-binder, cannot be loaded: ModuleNotFoundError: No "
            "module named 'nonesuch_client'"
        )


def test_plugin_for_another_version_is_always_reported() -> None:
    """Its hooks have unknown parameters."""

    class Older:
        @hookimpl
        def streamkit_binder_types(self, colour: str) -> None:
            """Have a parameter that no version passes."""

    app = StreamApplication(config_location="optional:/none", plugins=[Older()])
    for _ in range(2):
        with (
            pytest.raises(ConfigurationError, match=r"(?s)Older.* is not made for this version.*colour"),
            app.test(),
        ):
            pass
