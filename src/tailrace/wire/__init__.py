"""The languages that Tailrace speaks, as bytes: codecs without I/O. Each protocol is a package of its own."""
