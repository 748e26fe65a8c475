"""The composite filter of gRFC A103: a tree of matchers chooses, for every call, which filters judge it.

Messages come in and become a filter.
"""
