"""Answers one check, without I/O.

The bytes of a check come in, and a backend is picked for it; the bytes of the answer go out, with the request, the
decision, what it rests on and the name of the backend.
"""
