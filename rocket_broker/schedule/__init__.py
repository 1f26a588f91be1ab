"""Messages for later: where they wait, and what brings them to their topic when they are due.

::

    delay_levels, delay_service      by level: a queue of SCHEDULE_TOPIC_XXXX for each
    timer_request                    at any time: what a sender asks, as a moment
    timer_service                    gives each message in rmq_sys_wheel_timer a timer, and delivers
      timer_store                    the timers on the disk, in Apache 5.x's files
        timer_wheel                  moment -> its last timer
        timer_log                    the timers, each leading to the one before
        timer_checkpoint             how far they are
    recall_handle                    what a timed message is taken back by
"""
