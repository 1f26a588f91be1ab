"""Spans of OpenTelemetry for what an application sends and handles; on where the extra `tracing` is installed."""
