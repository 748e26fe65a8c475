"""Builds the validated routing graph, in named passes.

Documents and compiled policies come in; hosts, routes and clusters go out, and a report for each document.
"""
