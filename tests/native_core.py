"""Tests that need the native core are skipped without it, or fail where `STREAMKIT_REQUIRE_NATIVE` is set."""

import os
from typing import Any, TypeVar

import pytest

from rocket_remoting.native import has_native_core

needs_native_core = pytest.mark.skipif(
    not has_native_core() and not os.environ.get("STREAMKIT_REQUIRE_NATIVE"),
    reason="the native core is not installed: make native",
)

State = TypeVar("State")


def made(state: State, **attributes: Any) -> State:
    """Return a state with these attributes."""
    for name, value in attributes.items():
        setattr(state, name, value)
    return state
