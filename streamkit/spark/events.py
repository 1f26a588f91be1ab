"""Signals about streaming queries; as those of :mod:`streamkit.events`, their sender is the application."""

from blinker import Namespace

__all__ = ["query_failed", "query_progressed", "query_started", "query_stopped"]

_signals = Namespace()

query_started = _signals.signal("query_started", "binding, query: the query runs.")
query_progressed = _signals.signal(
    "query_progressed", "binding, progress: what Spark tells of a batch, a StreamingQueryProgress."
)
query_failed = _signals.signal("query_failed", "binding, error: the query ended with an error, as text.")
query_stopped = _signals.signal("query_stopped", "binding: the query was stopped.")
