"""The connected clients: members of groups, their heartbeats, and the queues they lock."""
