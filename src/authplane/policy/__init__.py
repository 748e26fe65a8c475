"""AccessPolicy as a language: compile, identify, decide, explain, and place each rule.

Documents come in and become rules on targets; then a request comes in, and a verdict with its grounds goes out.
"""
