"""AccessPolicy as a language: compile, identify, decide, explain, and place each rule.

Documents come in and become rules before targets; a request comes in, a verdict with its grounds goes out.
"""
