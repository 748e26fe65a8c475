"""Keeps parts of an extension that a proxy's old routes may still name.

Versions that a proxy accepted come in; new versions joined with those parts go out, for a limited time.
"""
