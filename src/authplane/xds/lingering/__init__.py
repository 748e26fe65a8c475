"""What proxies keep of an extension's earlier versions, because routes of before may name it."""
