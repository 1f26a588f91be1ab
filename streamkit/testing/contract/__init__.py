"""The test suite that every binder has to pass.

::

    from streamkit.testing.contract import BinderContract, ContractEnvironment

    class MyEnvironment(ContractEnvironment):
        binder_type = "mymq"
        ...

    class TestMyBinder(BinderContract):
        @pytest.fixture
        def environment(self):
            yield MyEnvironment()

Each case runs applications through the public API only. If the binder declares that it lacks a capability that the
case needs, the case asserts that the framework refuses to use it. The environment sets the times: on virtual time
the documented ones, on a real clock the shortest that the system can be configured to.
"""

from streamkit.testing.contract.attempts import AttemptCases
from streamkit.testing.contract.batches import BatchCases
from streamkit.testing.contract.environment import ContractEnvironment
from streamkit.testing.contract.errors import ErrorCases
from streamkit.testing.contract.groups import GroupCases
from streamkit.testing.contract.hooks import HookCases
from streamkit.testing.contract.lifecycle import LifecycleCases
from streamkit.testing.contract.messages import MessageCases
from streamkit.testing.contract.order import OrderCases
from streamkit.testing.contract.polling import PollingCases
from streamkit.testing.contract.scenario import Recorder, Scenario
from streamkit.testing.contract.sending import SendingCases
from streamkit.testing.contract.settlements import SettlementCases
from streamkit.testing.contract.transactions import TransactionCases
from streamkit.testing.contract.types import TypeCases

__all__ = ["BinderContract", "ContractEnvironment", "Recorder", "Scenario"]


class BinderContract(
    GroupCases,
    OrderCases,
    AttemptCases,
    SettlementCases,
    BatchCases,
    PollingCases,
    ErrorCases,
    MessageCases,
    TypeCases,
    HookCases,
    SendingCases,
    TransactionCases,
    LifecycleCases,
):
    """All cases; subclass it as `Test...` and give it a fixture `environment`."""
