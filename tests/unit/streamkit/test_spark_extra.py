"""An application with a Spark query without PySpark."""

import sys

import pytest

from streamkit.errors import ConfigurationError
from streamkit.spark.session import running_session


def test_missing_pyspark_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a configuration error, not as an import error."""
    monkeypatch.setitem(sys.modules, "pyspark", None)  # what the import system takes for a missing module
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    with pytest.raises(
        ConfigurationError, match=r"needs the package pyspark: pip install 'streamkit-messaging\[spark\]'"
    ):
        running_session("shop")
