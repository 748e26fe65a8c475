"""Describes one authorization service: its backends, its fronts, and where it writes what happens.

Options and documents come in; a `ServerPlan` goes out, which the server and its workers read, in whatever process.
"""
