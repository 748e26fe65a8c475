"""The composite filter of gRFC A103: a matcher tree chooses the filters for each call.

A configuration message comes in; a filter goes out.
"""
