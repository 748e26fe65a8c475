"""Authorization services: in the test's own process or as a program, and the checks that they are sent.

Backends and orders come in; addresses to ask, and notes of what was decided, go out.
"""
