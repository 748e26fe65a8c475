"""Everything on this machine: `authplane run`, the quickstart, the sample origins, the development issuer.

A folder comes in; a gateway that answers goes out.
"""
