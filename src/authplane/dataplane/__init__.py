"""What a gRPC client or server obeys: xDS resources as values, and the picking of routes."""
