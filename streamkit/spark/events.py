"""Signals of streaming queries. Their sender is the application, as for the signals of :mod:`streamkit.events`."""

from blinker import Namespace

__all__ = ["query_failed", "query_progressed", "query_started", "query_stopped"]

_signals = Namespace()

query_started = _signals.signal("query_started", "binding, query: the query runs.")
query_progressed = _signals.signal("query_progressed", "binding, progress: Spark's StreamingQueryProgress of a batch.")
query_failed = _signals.signal("query_failed", "binding, error: the query ended with an error, as text.")
query_stopped = _signals.signal("query_stopped", "binding: the query was stopped.")
