"""One generation after the other: from documents to what each proxy gets.

Loaded resources come in; snapshots for each release of Envoy go out.
"""
