"""Routes, attempts, outgoing and pulled messages: what the asyncio and the blocking client share. Does no I/O."""
