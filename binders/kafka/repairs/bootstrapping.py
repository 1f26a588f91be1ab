"""Ends connecting when all bootstrap brokers have refused the client.

kafka-python (seen in 3.0.10 to 3.0.12) tries a broker again until `bootstrap_timeout_ms` is over, whatever the broker
said, and then raises a `KafkaTimeoutError` that does not say why: a wrong certificate looks like a broker that is away.
A client that is `interrupted` by another thread, because the application stops, ends connecting at once as well.
Only public names are needed here: `get_connection` and `maybe_raise_auth_failure` are overridden, and the manager is
given to the client by the setting `kafka_client`.
"""

from collections.abc import Callable
from typing import Any

from binders.kafka.outages import note_answer, note_failure, without_repetitions
from binders.kafka.repairs.network import Network
from binders.kafka.repairs.transports import build_transport
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager

__all__ = ["Bootstrapping", "Refusal"]

Refusal = Callable[[BaseException], KafkaError | None]
"""Returns the error for a failure that only other settings can end; None for a failure that may be temporary."""


class Bootstrapping(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no annotations
    """The connections of one client.

    Attributes:
        refusals: The brokers that have refused, by their ids, with the error for each.
    """

    def __init__(self, refusal_of: Refusal, **settings: Any) -> None:
        """Make connections.

        Args:
            refusal_of: Tells refusals from other failures.
            settings: The client's configuration.
        """
        self.refusals: dict[object, KafkaError] = {}
        self._refusal_of = refusal_of
        self._is_interrupted = False
        self.network = Network(**settings)
        without_repetitions()
        super().__init__(self.network, **settings)

    def interrupt(self) -> None:
        """Make connecting fail now; may be called by any thread. Blocks until the client's thread has ended."""
        # If the thread has not started yet, the first connection fails instead.
        self._is_interrupted = True
        self.network.stop()

    def client(self) -> KafkaNetClient:
        """Return the client that has these connections."""
        return KafkaNetClient(self.network, self)

    @property
    def refusal(self) -> KafkaError | None:
        """One of the refusals, once all brokers have refused; another broker may only be away for a while."""
        brokers = [each.node_id for each in self.cluster.bootstrap_brokers()]
        if brokers and all(each in self.refusals for each in brokers):
            return self.refusals[brokers[0]]
        return None

    def get_connection(self, node_id: object, *details: Any, **more: Any) -> Any:
        """Return a connection to a broker; note it if the broker refuses."""
        connection = super().get_connection(node_id, *details, **more)
        if not self.bootstrapped:
            connection.init_future.add_errback(lambda error: self._note(node_id, error))
        return connection

    def maybe_raise_auth_failure(self, node_id: object) -> None:
        """Raise the refusal if all brokers have refused: kafka-python calls this before it connects.

        Raises:
            KafkaError: All brokers have refused, or connecting was interrupted.
        """
        if self._is_interrupted:
            raise KafkaConnectionError("connecting was interrupted")
        refusal = None if self.bootstrapped else self.refusal
        if refusal is not None:
            raise refusal
        super().maybe_raise_auth_failure(node_id)

    def _note(self, node_id: object, error: BaseException) -> None:
        refusal = None if self.bootstrapped else self._refusal_of(error)
        if refusal is not None:
            self.refusals[node_id] = refusal

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        address = f"{node.host}:{node.port}"
        try:
            transport = await build_transport(self, node, timeout_at)
        except KafkaConnectionError as error:
            note_failure(address, error)
            raise
        note_answer(address)
        return transport
