"""The connected clients: members of groups, their heartbeats, and their queue locks."""
