"""Signals that an application sends about itself, for metrics and tests.

    from streamkit.events import message_failed

    @message_failed.connect
    def count(application, *, binding, message, error): ...

They are blinker signals. Their sender is the application: with `signal.connect(receiver, sender=app)` a receiver gets
the signals of that application only. Callers on the hot path test `signal.receivers` before they collect the values,
so that a signal without receivers costs one attribute access:

    if message_sent.receivers:
        notify(message_sent, app, binding="orders", message=message)

Receivers are called synchronously, on the application's loop or on the thread that sends. They must be plain functions
and must not block.
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
binding_failed = _signals.signal("binding_failed", "binding, error: it could not be bound; it is tried again.")
binding_removed = _signals.signal("binding_removed", "binding: its name.")
binding_changed = _signals.signal("binding_changed", "binding, state: it was paused or resumed.")

message_sent = _signals.signal("message_sent", "binding, message: the messaging system accepted it.")
message_kept = _signals.signal(
    "message_kept", "binding, message: it could not be sent now, and is kept to be sent later."
)
send_failed = _signals.signal("send_failed", "binding, message, error: it was not accepted.")
send_answered = _signals.signal(
    "send_answered", "binding, seconds: how long a send took, of one message or of several that were sent together."
)
message_received = _signals.signal("message_received", "binding, message: it came, and goes to the listener.")
message_handled = _signals.signal("message_handled", "binding, message, seconds: the listener returned.")
message_failed = _signals.signal("message_failed", "binding, message, error: one attempt failed.")
message_duplicate = _signals.signal(
    "message_duplicate", "binding, message, key: it was handled before, so the listener is not called."
)
message_settled = _signals.signal(
    "message_settled", "binding, message (of the last attempt), settlement: an Accept, a Requeue or a Reject."
)


def notify(signal: Signal, sender: object, **values: object) -> None:
    """Call the signal's receivers with the values.

    An exception of a receiver is logged and not raised, so that the other receivers are called. A receiver that
    returns a coroutine is treated likewise: nothing would await the coroutine.

    Args:
        signal: The signal.
        sender: The application.
        values: Passed to each receiver as keyword arguments.
    """
    for receiver in signal.receivers_for(sender):
        try:
            returned = receiver(sender, **values)
            if iscoroutine(returned):
                returned.close()
                raise TypeError("signals do not await receivers: connect a plain function, which may start a task")
        except Exception:  # a receiver's failure must not fail the message
            logger.exception("Receiver %r of signal %s failed", receiver, getattr(signal, "name", signal))
