"""The how-to page: its code is Python, and its settings are ones that exist."""

import ast
import re
from pathlib import Path

import pytest

from binders.rocket.properties import RocketConsumerProperties
from streamkit.config.settings import ConsumerProperties

PAGE = Path(__file__).parents[2] / "docs" / "how-to.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_code_is_python(snippet: str) -> None:
    """Each block compiles, top-level `await` included."""
    compile(snippet, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_settings_exist() -> None:
    """Each `consumer.…` setting is one of the framework's or of the binder's."""
    named = set(re.findall(r"`consumer\.([a-z-]+)", PAGE.read_text()))
    known = {
        name.replace("_", "-")
        for name in (*ConsumerProperties.model_fields, *RocketConsumerProperties.model_fields)
    }
    assert named
    assert named <= known
