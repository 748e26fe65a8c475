"""The server's side: brings each client to the newest snapshot, step by step.

Snapshots, requests and refusals come in; responses go out, additions before removals.
"""
