"""xDS resources as frozen values.

`read` makes them of messages; `routing` uses them.
"""
