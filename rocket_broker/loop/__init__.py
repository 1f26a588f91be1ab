"""Time of the loop: its clock, work in steps, and the watchdog that logs long steps."""
