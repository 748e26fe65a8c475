"""What every room speaks of: problems with paths, names, timeouts, secrets, strict JSON, releases of Envoy.

Text comes in, small checked values go out. Imports nothing of ours.
"""
