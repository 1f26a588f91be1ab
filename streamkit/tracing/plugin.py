"""The plugin that traces the bindings of every application, once OpenTelemetry is installed and has a tracer provider.

Every application loads it, so it imports OpenTelemetry only if the application has, or if a variable names a provider.
"""

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from streamkit.plugins import hookimpl

if TYPE_CHECKING:
    from streamkit.binder.tracing import TracedBinding
    from streamkit.tracing.span_tracer import SpanTracer

_PROVIDER_VARIABLE: Final = "OTEL_PYTHON_TRACER_PROVIDER"
"""The environment variable by which OpenTelemetry makes a provider if no code has set one."""


@hookimpl
def streamkit_message_tracer(binding: "TracedBinding") -> "list[SpanTracer]":
    """Return a tracer for the binding; none if neither code nor a variable has set a tracer provider."""
    if not _may_have_provider():
        return []
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider):  # its spans would be dropped, after some work for each message
        return []
    from streamkit.tracing.span_tracer import SpanTracer

    return [SpanTracer(binding, provider)]


def _may_have_provider() -> bool:
    """Return whether somebody has imported OpenTelemetry, or it is installed and its variable names a provider."""
    return "opentelemetry.trace" in sys.modules or (
        _PROVIDER_VARIABLE in os.environ and find_spec("opentelemetry") is not None
    )
