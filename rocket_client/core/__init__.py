"""The parts without I/O that the asyncio and the blocking client share: routes, attempts, sent and pulled messages."""
