"""The event loop's time: its clock, work in steps, and the watchdog that logs long steps."""
