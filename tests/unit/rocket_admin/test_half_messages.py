"""Half messages of open transactions, while the broker checks them."""

from rocket_admin.half_messages import end_half_messages, half_messages
from rocket_client import LocalTransactionState, TransactionProducer, TransactionProducerSettings
from rocket_remoting import Message
from streamkit.chaos import Chaos
from tests.end_to_end.client_stage import ClientStage, play


def test_no_half_message_is_hidden_by_a_check() -> None:
    """Each check stores it again; here there are some checks between any two requests."""

    async def unknown(message: Message) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    async def scene(stage: ClientStage) -> None:
        settings = TransactionProducerSettings(name_servers=stage.broker.name_server_address)
        producer = TransactionProducer("tellers", settings, unknown, transport=stage.transport, clock=stage.time.clock)
        async with producer, stage.admin() as admin:
            ids = [(await producer.begin(Message("orders", b"%d" % number))).message.unique_key for number in range(2)]
            for _ in range(3):
                found = await half_messages(admin)
                assert [half.record.message_id for half in found.pending] == ids
            assert found.pending[0].checks > 1
            ended = await end_half_messages(admin, ids[:1], commits=False)
            assert [half.record.message_id for half in ended] == ids[:1]

    checks = {"transactionCheckInterval": "30", "transactionTimeOut": "1", "transactionCheckMax": "1000000"}
    play(scene, chaos=Chaos.parse("seed=7,delay=20ms"), **checks)
