"""The local store: messages that cannot be sent now are kept in a file, and sent when the messaging system is back.

streamkit.local-store.path=/var/lib/shop/unsent.db

receipt = SendReceipt()
await app.bridge.asend("orders", order, {RECEIPT: receipt})
if receipt.status is SendStatus.KEPT: ...
"""

from streamkit.messaging.headers import RECEIPT
from streamkit.messaging.receipt import SendReceipt, SendStatus

__all__ = ["RECEIPT", "SendReceipt", "SendStatus"]
