"""Keeps idempotent producers usable after a message that brokers refuse.

kafka-python's idempotent producer, which is its default, takes a refused message (one that is too large for its topic,
say) for the end of the producer: every later `send` fails with the same error (seen in 3.0.10 to 3.0.12). Java's
producer goes on with the next epoch, which `TransactionManager` can do, too, but does for other errors only. What it
does is decided by `TransactionManager.classify_batch_error`.
"""

from functools import partial
from typing import Any

__all__ = ["continue_after_refused_messages"]


def continue_after_refused_messages(producer: Any) -> None:
    """Make an idempotent producer continue after an error about one message; do nothing for other producers.

    Args:
        producer: A `KafkaProducer`.
    """
    state = producer._transaction_manager
    if state is not None and not state.is_transactional():
        state.classify_batch_error = partial(_classify, state)


def _classify(state: Any, error: object, *details: object, **more: object) -> str:
    """Return how the producer handles an error: after a fatal error about one message it starts a new epoch."""
    kinds = type(state)
    kind: str = kinds.classify_batch_error(state, error, *details, **more)
    is_about_message = kind == kinds.ERROR_CLASS_FATAL and type(error) not in kinds._FATAL_ERRORS
    return kinds.ERROR_CLASS_NEEDS_EPOCH_BUMP if is_about_message and state._supports_epoch_bump() else kind
