"""The fronts that listen, all through `answer_checks`.

Bytes of a check come in, bytes of an answer go out, never an allowance by accident.
"""
