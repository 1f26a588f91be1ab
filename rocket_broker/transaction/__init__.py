"""Transactions: half messages nobody sees, their ends, and the questions about those that never ended.

::

    producer ── half message ──► half_messages ── REAL_TOPIC, REAL_QID ──► RMQ_SYS_TRANS_HALF_TOPIC
             ── END_TRANSACTION (37): commit ──► the message in its own topic, then an op message
                                      rollback ──────────────────────────► an op message
             ◄─ CHECK_TRANSACTION_STATE (39) ── check_service, while no op message names the half message

`op_messages` is the op messages' format, `pending` knows which half messages no op message names.
"""
