"""One module per Kafka API: its request, its response and their structs. Loaded on first use."""
