"""The examination of a cluster: what is wrong, with names, and the command or the setting that mends it.

::

    examination.py    runs all checks at once, within a bounded time
    name_servers.py   do the name servers answer, and agree on brokers and topics?
    brokers.py        are brokers reachable at the addresses that they advertise? versions, clocks, disks, settings
    permissions.py    what was taken away: by the name servers, by a broker's setting, from a topic, from a group
    groups.py         lag without members, lag that grows, members that subscribe to different things, dead letters

A check returns findings (`streamkit.findings`). What cannot be known is a finding, too (`Severity.UNKNOWN`).
"""
