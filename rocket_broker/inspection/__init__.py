"""The command `streamkit store`: inspects and repairs a store that no broker has open."""
