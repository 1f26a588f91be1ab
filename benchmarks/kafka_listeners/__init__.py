"""Programs that listen on Kafka, each a process of its own."""
