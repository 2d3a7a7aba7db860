"""Errors that handlers of signals raise, such as a time limit's: they belong to the application."""

import signal


def is_from_signal(error: BaseException) -> bool:
    """Return whether a handler of a signal raised *error*, such as a time limit's: it belongs to the application.

    The signal may have come while the profiler worked.
    """
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = (getattr(each, "__func__", each) for each in handlers)  # it may be a bound method
    codes = {getattr(each, "__code__", None) for each in functions}
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code not in codes:
        traceback = traceback.tb_next
    return traceback is not None
