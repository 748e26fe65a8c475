"""Builds only what has changed: whoever builds is watched, and what it looked at is compared the next time.

A build function comes in; its result, new or remembered, goes out.
"""
