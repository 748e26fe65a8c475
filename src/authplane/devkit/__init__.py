"""What people try, test and diagnose policies and gateways with, on their own machine.

Answers, folders and files come in; a new folder or a local gateway goes out, or results of `check`, `test`, `lint`,
`explain`, `match` and `doctor`.
"""
