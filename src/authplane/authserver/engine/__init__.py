"""One check: bytes in, bytes and the decision out.

Messages are read strictly, a backend decides, the answer is written.
"""
