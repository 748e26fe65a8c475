"""Trees of the unified matcher, tried on described calls.

Files come in; the way that a call takes goes out.
"""
