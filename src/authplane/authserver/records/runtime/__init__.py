"""Decision log, metrics and traces; none of them holds up a check.

Records come in; lines, numbers and spans go out.
"""
