"""What TLS costs: the same load by a plain listener and by one with TLS of the same broker, as a ratio."""
