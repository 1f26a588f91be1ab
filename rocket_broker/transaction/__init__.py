"""Transactions: half messages that no consumer sees, their ends, and the checks of those that have not ended.

::

    producer ── half message ──► half_messages ── REAL_TOPIC, REAL_QID ──► RMQ_SYS_TRANS_HALF_TOPIC
             ── END_TRANSACTION (37): commit ──► the message in its own topic, then an op message
                                      rollback ──────────────────────────► an op message
             ◄─ CHECK_TRANSACTION_STATE (39) ── check_service, while no op message names the half message

`op_messages` has the format of op messages; `pending` knows the half messages that no op message names yet.
"""
