"""Administration of a RocketMQ cluster: what an operator asks about it, and does to it.

::

    async with Admin(ClientSettings(name_servers="127.0.0.1:9876")) as admin:
        for topic in (await list_topics(admin)).topics:
            print(topic.topic, topic.write_queues)

Each module is about one noun. Its functions take a running `rocket_client.Admin` and return structs of msgspec, whose
fields are those of the commands' ``--json``. A value that is not known is None, and never 0. `rocket_admin.commands`
has the commands of ``streamkit``.
"""
