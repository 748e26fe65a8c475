"""The filter that ends every chain.

The call goes on to its handler or its backend.
"""
