"""Reads the bootstrap of an xDS client, and the credentials that it names.

JSON comes in; servers, authorities, templates and credentials go out, or every problem.
"""
