"""Protocol-level load on several brokers in turns: rates, CPU of the broker, latency, side by side in one run."""
