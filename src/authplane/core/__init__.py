"""Small values that every room uses: problems with paths, names, timeouts, secrets, strict JSON, text, Envoy releases.

Text comes in; checked values go out. This package imports no other package of ours.
"""
