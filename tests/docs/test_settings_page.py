"""docs/settings.md has the tables of the models, and every documented key of Spring's."""

import re
from pathlib import Path

from streamkit.config.application_properties import GROUPS
from streamkit.config.reference import MARKER, documented, reference_tables
from streamkit.config.settings import StreamSettings
from streamkit.plugins.application_plugins import ApplicationPlugins

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_tables_are_generated_from_the_models() -> None:
    """When this fails, run `streamkit config reference --update docs/settings.md`."""
    _, _, tables = PAGE.read_text().partition(MARKER)
    assert tables.strip() == reference_tables(ApplicationPlugins().binder_types()).strip()


def test_every_supported_setting_has_a_description() -> None:
    """A row without a text would be a riddle."""
    types = ApplicationPlugins().binder_types()
    models = [StreamSettings, *(group.model for group in GROUPS)]
    for name in types.names:
        models += [*types.extended_models(name), *types.settings_models(name).values()]
    riddles = [
        f"{model.__name__}: {row.key}"
        for model in models
        for row in documented(model)
        if row.status.startswith("honoured") and not row.text
    ]
    assert riddles == []


def test_table_rows_have_five_cells() -> None:
    """Whatever their text."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {7}
