"""The filter that ends every chain: the call goes on to its handler or its backend."""
