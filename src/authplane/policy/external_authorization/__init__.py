"""External services that policies ask.

A request comes in; the question as a message goes out, and the service's words become a decision.
"""
