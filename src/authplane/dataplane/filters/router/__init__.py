"""The router filter, which ends every chain.

A configuration message comes in, whose fields have no effect; a filter goes out that lets the call proceed.
"""
