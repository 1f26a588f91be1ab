"""The Kafka binder: channels on Apache Kafka, with the headers and the settings of Spring's Kafka binder.

plugin.py               offers the binder type to the framework
binder.py               connects and makes bindings
topics.py               looks up, creates and enlarges topics
producer.py             makes records from messages
sending.py              sends records and awaits the brokers' acknowledgments
fetching.py             polls records on a thread of its own
consumer.py             passes the records of a thread to the framework's drivers
partition.py            the unsettled records of a partition, and the offset to commit
handling.py             makes messages from records, and carries settlements out
dead_letter.py          writes rejected messages to a dead-letter topic
polled.py               passes messages to the application when it polls
transactions.py         commits sends and offsets together
headers.py              maps headers of messages to headers of records and back
properties.py           settings of bindings; binder_properties.py: settings of the binder
client_config.py        translates Kafka's properties to kafka-python's configuration
connecting.py           connects clients, and finds the setting that a refusal is about
clients.py              makes kafka-python's clients
record_size.py          measures records in bytes of memory
repairs                 repairs of kafka-python's defects, and shorter ways through it
"""
