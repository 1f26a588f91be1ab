"""An application with a Spark query where PySpark is not installed."""

import sys

import pytest

from streamkit.errors import ConfigurationError
from streamkit.spark.session import running_session


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an error of the application's settings, not of an import."""
    monkeypatch.setitem(sys.modules, "pyspark", None)  # what the import system takes for a missing module
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    with pytest.raises(ConfigurationError, match=r"needs the package pyspark: pip install 'streamkit\[spark\]'"):
        running_session("shop")
