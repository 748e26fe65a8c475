"""The real Envoy, of both releases, in small arrangements; and what rendered messages make it ask.

Configurations come in; running proxies and their answers go out.
"""
