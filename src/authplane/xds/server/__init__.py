"""The server side: it brings each client to the newest snapshot, step by step.

Snapshots, requests and the time come in; responses go out, additions before removals.
"""
