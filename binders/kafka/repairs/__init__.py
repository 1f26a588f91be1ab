"""Repairs of defects of kafka-python, and shorter ways through what it does for each record.

Only this package uses undocumented names of kafka-python; `known_library` lists them, and refuses a version without
them when the binder is imported. Each module says what it repairs and in which versions the defect was
seen; the tests `test_kafka_repairs_*` run kafka-python without the repair, and fail once it is no longer needed::

    module              kafka-python without it
    transports          drops a broker's last response before it disconnects; leaves sockets of failed handshakes open;
                        makes several system calls for each write and read
    bootstrapping       connects again to brokers that refuse it, and then reports only a timeout
    abandoned_clients   leaves the thread of a client that could not connect running
    partition_records   stops a partition at the first unreadable bytes
    batches             the same within a batch; accepts records with any number of headers
    decompression       decompresses batches without a limit
    poll_budget         limits a poll by the number of records, not by their bytes
    interrupted_joins   abandons a join of the group when a short poll ends
    parked_records      may never deliver a partition again that was paused
    kept_positions      continues at an old position when a partition returns from another member
    listener_waits      (no defect) has no public way to wait in a rebalance listener
    refused_messages    fails all sends after a message that brokers refuse
    producer_closing    does not close while messages are unacknowledged, and leaves its thread running
    transaction_waits   waits without a timeout for brokers
    appended_records    (no defect) chooses partitions twice, and copies sets of them, for each record
    sending_turns       (no defect) wakes a thread for each record, and the loop for each acknowledgment
    produce_requests    (no defect) makes many objects for each request that sends batches
    network             (no defect) registers a connection anew for each read
    known_topics        (no defect) has no public access to a topic's metadata without waiting for brokers
"""

from binders.kafka.repairs.known_library import require_known_library

require_known_library()
