"""Matcher trees at random, a model of what they mean, and what grpcio's own filter makes of them.

Seeds come in; messages and verdicts go out.
"""
