"""Evaluates policies before they are used: `check`, `test`, `lint`, `explain`.

Folders and described requests come in; decisions with their reasons go out, results of tests, and findings.
"""
