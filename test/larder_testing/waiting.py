"""Waiting for something with a limit."""
import time


def until(condition, limit_s, what, pause_s=0.05):
    """condition()'s first true value. AssertionError after limit_s seconds; `what` says what was
    waited for, a text or a function that makes it.
    """
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {limit_s:g} s: {what() if callable(what) else what}")
        time.sleep(pause_s)
    return value
