"""Delayed and timed messages: where they wait, and how they get to their topic when they are due.

::

    delay_service                    delay levels: a queue of SCHEDULE_TOPIC_XXXX for each level
    timer_service                    timed messages of rmq_sys_wheel_timer: adds their timers, and delivers
      timer_store                    the timers on the disk, in Apache 5.x's files
        timer_wheel                  moment -> the last of its timers
        timer_log                    the timers; each leads to the previous timer of its moment
        timer_checkpoint             the progress of both

`rocket_remoting.wire.recall_handle` is the handle by which a sender recalls a timed message.
`rocket_broker.settings.delay_levels` has the delays of the levels, `rocket_broker.writing.timer_request` the moment
that a sender asks for.
"""
