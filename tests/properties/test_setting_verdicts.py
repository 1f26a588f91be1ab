"""Every documented setting of a binding, on every binder and in both directions, has a visible outcome.

The start refuses it, warns of it, or honours it; it may honour only what code of the binder or of the framework reads.
"""

import ast
from datetime import timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.config.durations import format_duration
from streamkit.config.environment import Environment
from streamkit.config.relaxed import kebab, uniform
from streamkit.config.report import ReportedSetting, report_settings
from streamkit.config.settings import PREFIX, BindingProperties
from streamkit.config.shape import Field, Leaf, Listing, Section, Table, section_of
from streamkit.config.verdict import Verdict
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings

ROOT = Path(__file__).parents[2]
PLUGINS = ApplicationPlugins()
PACKAGES = {"inmemory": "inmemory", "rocketmq": "rocket", "kafka": "kafka"}
BY_A_VALIDATOR = {"time_unit"}
"""Settings that the validator of the settings beside them reads."""
FOR_BINDERS = {"instance_count", "instance_index", "partition_count", "required_groups"}
"""Settings of bindings that the framework only hands to the binder."""
VALUES = {
    "destination": "there",
    "content-type": "text/plain",
    "binder": "other",
    "retryable-exceptions": "ValueError=true",
    "partition-key-expression": "payload",
    "partition-selector-expression": "#root",
    "message-key-expression": "payload",
    "cron": "0 * * * * *",
    "consume-timestamp": "20200101000000",
    "configuration": "client.id=x",
    "replicas-assignments": "0=1",
    "properties": "retention.ms=5",
    "admin": "a=b",
    "required-acks": "1",
    "name-server": "127.0.0.1:1",
}


class Setting(NamedTuple):
    """A documented setting: its key below the binding, its field, and the type whose model has it."""

    binder: str
    is_input: bool
    side: str
    key: str
    field: Field
    is_extended: bool


def documented() -> list[Setting]:
    """All settings on all binders and in both directions, those of the other direction included."""
    found = []
    for binder in PACKAGES:
        sides = zip(("consumer", "producer"), PLUGINS.binder_types().extended_models(binder), strict=True)
        extended = [(side, key, field) for side, model in sides for key, field in fields(section_of(model))]
        core = [(key.split(".")[0], key, field) for key, field in fields(section_of(BindingProperties))]
        for is_input in (True, False):
            found += [Setting(binder, is_input, side, key, field, True) for side, key, field in extended]
            found += [Setting(binder, is_input, side, key, field, False) for side, key, field in core]
    return found


def fields(section: Section, prefix: str = "") -> list[tuple[str, Field]]:
    found = []
    for field in dict.fromkeys(section.fields.values()):
        key = f"{prefix}{kebab(field.name)}"
        found += fields(field.shape, f"{key}.") if isinstance(field.shape, Section) else [(key, field)]
    return found


def value_of(field: Field) -> str:
    """A value of the field's kind that is not its default."""
    name, shape = kebab(field.name), field.shape
    default = field.declared.default()
    if name in VALUES:
        return VALUES[name]
    if isinstance(shape, Table | Listing):
        return "x=y" if isinstance(shape, Table) else "1s 5s" if "delay" in name else "1"
    kind = kind_of(shape)
    if kind is bool:
        return str(default is not True).lower()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(each for each in kind if each is not default).value)
    if kind in (int, float):
        return str((default or 1) + 1) if default != -1 else "2"
    return format_duration((default or timedelta()) + timedelta(minutes=1)) if kind is timedelta else "x"


def kind_of(shape: object) -> object:
    kind: Any = shape.type if isinstance(shape, Leaf) else None
    while get_args(kind) and not isinstance(kind, type):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return kind


def row_of(setting: Setting) -> ReportedSetting:
    """What the report says of the setting, on a binding that exists."""
    name = "it-in-0" if setting.is_input else "it-out-0"
    prefix = (
        f"{PREFIX}.{setting.binder}.bindings.{name}.{setting.side}."
        if setting.is_extended
        else f"{PREFIX}.bindings.{name}."
    )
    entry, equals, value = value_of(setting.field).rpartition("=")
    key = prefix + setting.key + (f".{entry}" if equals else "")
    environment = Environment.load(
        overrides={key: value},
        defaults={
            f"{PREFIX}.default-binder": setting.binder,
            f"{PREFIX}.inmemory.binder.stands-in-for": "inmemory",
            f"{PREFIX}.bindings.{name}.destination": "here",
        },
        variables={},
        config_location="optional:/none",
    )
    rows = report_settings(environment, rehearse_settings(environment, PLUGINS).problems)
    return next(row for row in rows if uniform(row.key) == uniform(key) and row.verdict is not Verdict.OVERRIDDEN)


@cache
def names_read(folder: str) -> frozenset[str]:
    """The names of all attributes that the modules of a folder read."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py") if "ignored" not in path.name)
    return frozenset(node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def is_read(setting: Setting) -> bool:
    """Whether code that can act on the setting reads it."""
    if setting.field.name in BY_A_VALIDATOR:
        return True
    readers = [f"binders/{PACKAGES[setting.binder]}"]
    if setting.field.name not in FOR_BINDERS:
        readers += ["streamkit/binder", "streamkit/functions", "streamkit/listeners", "streamkit/assembly"]
    return any(setting.field.name in names_read(reader) for reader in readers)


@settings(max_examples=80)
@given(st.sampled_from(documented()))
def test_every_documented_setting_has_an_outcome(setting: Setting) -> None:
    """Refused, without effect with the reason, or honoured by the code that reads it; never in the other direction."""
    row = row_of(setting)
    if row.verdict is not Verdict.HONOURED:
        assert row.verdict is not Verdict.FOREIGN
        assert row.reason
        assert row.reason != "nothing reads it"
        return
    assert is_read(setting), f"nothing reads {row.key}"
    assert setting.side not in ("producer" if setting.is_input else "consumer", "" if setting.is_input else "group")


def test_the_walk_knows_all_settings() -> None:
    """Those of bindings on each binder, and each binder's own, in both directions."""
    found = documented()
    assert {each.binder for each in found} == set(PACKAGES)
    assert len(found) > 500
