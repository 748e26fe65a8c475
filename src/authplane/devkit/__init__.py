"""What people try things with, on their own machine.

Folders and files come in; a local gateway, answers of `check`, `test`, `explain` and `match` go out.
"""
