"""Instructions that the processor executes for each message on the hot paths, counted by Valgrind.

Unlike time, the count of instructions does not depend on what else the machine does, so CI can compare it. It counts
this process only, not the kernel's work for its system calls.
"""
