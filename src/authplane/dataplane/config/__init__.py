"""xDS resources as frozen values.

Messages come in through `read`; values go out, which `routing` uses.
"""
