"""`streamkit store`: look into a store that no broker has open, and repair it."""
