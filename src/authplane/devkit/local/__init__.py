"""Runs everything on this machine: `authplane run`, the quickstart, sample origins, the development issuer.

A folder comes in; a running gateway goes out.
"""
