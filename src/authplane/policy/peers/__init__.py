"""Who a peer is, by its certificate or by a token of its workload; never by a header that a client can set."""
