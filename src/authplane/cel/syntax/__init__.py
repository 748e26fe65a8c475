"""Expressions as trees: what they say, what they read, and what may be said at all.

Parsed trees and vocabularies come in; what a tree reads, and its text as people write it, go out.
"""
