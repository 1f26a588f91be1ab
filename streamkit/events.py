"""Signals an application sends about itself, for metrics, tests and the curious.

    from streamkit.events import message_failed

    @message_failed.connect
    def count(application, *, binding, message, error): ...

They are blinker signals whose sender is the application: `signal.connect(receiver, sender=app)` hears only
that one. A signal nobody listens to costs one look at `signal.receivers`, which callers on a message's way
take before they gather what to tell:

    if message_sent.receivers:
        notify(message_sent, app, binding="orders", message=message)

Receivers run at once, on the application's loop or on the thread that sends; they are plain functions, and must not
block.
"""

import logging
from inspect import iscoroutine

from blinker import Namespace, Signal

logger = logging.getLogger(__name__)

_signals = Namespace()

application_started = _signals.signal("application_started", "Every binding that starts by itself is bound.")
application_stopped = _signals.signal("application_stopped", "Nothing is bound any more.")
loop_blocked = _signals.signal("loop_blocked", "seconds: how long the application's loop did not turn.")

binding_created = _signals.signal("binding_created", "binding: its name; kind: consumer or producer.")
binding_failed = _signals.signal(
    "binding_failed", "binding, error: it could not be bound; it is tried again."
)
binding_removed = _signals.signal("binding_removed", "binding: its name.")
binding_changed = _signals.signal("binding_changed", "binding, state: it was paused or resumed.")

message_sent = _signals.signal("message_sent", "binding, message: the messaging system accepted it.")
send_failed = _signals.signal("send_failed", "binding, message, error: it was not accepted.")
message_received = _signals.signal("message_received", "binding, message: it came, and goes to the listener.")
message_handled = _signals.signal("message_handled", "binding, message, seconds: the listener returned.")
message_failed = _signals.signal("message_failed", "binding, message, error: one attempt failed.")
message_settled = _signals.signal(
    "message_settled", "binding, message, settlement: accepted, retried, rejected."
)


def notify(signal: Signal, sender: object, **values: object) -> None:
    """Tells the signal's receivers; one that raises, or would have to be awaited, is logged and disturbs nobody."""
    for receiver in signal.receivers_for(sender):
        try:
            told = receiver(sender, **values)
            if iscoroutine(told):
                told.close()
                raise TypeError("signals wait for nobody: connect a plain function, which may start a task")
        except Exception:  # an observer's failure must not become the message's
            logger.exception("Receiver %r of signal %s failed", receiver, getattr(signal, "name", signal))
