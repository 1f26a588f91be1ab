"""Ends the threads of clients whose constructor failed.

`KafkaConsumer`, `KafkaProducer` and `KafkaAdminClient` start a thread and connect in their constructors. When brokers
cannot be reached, the constructor raises, but the thread goes on, and no public method ends it (seen in 3.0.10 to
3.0.12). Each retry of a binding would leave one more thread. The repair uses public names only.
"""

from binders.kafka.repairs.bootstrapping import Bootstrapping

__all__ = ["end"]


def end(connections: Bootstrapping) -> None:
    """Stop the thread of a failed client and close its connections; block until the thread has ended."""
    connections.network.stop()
    connections.close()
    connections.network.close()
