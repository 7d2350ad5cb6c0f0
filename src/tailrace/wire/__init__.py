"""The languages that Tailrace speaks, as bytes: codecs without I/O. Each is a package of its own."""
