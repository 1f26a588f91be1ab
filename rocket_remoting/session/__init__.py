"""One connection, seen from either end: requests and their answers, limits, turns."""
