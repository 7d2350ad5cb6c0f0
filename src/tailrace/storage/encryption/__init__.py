"""Encryption at rest: stored batches, the data keys, and the file that keeps them (ADR 0029).

`layout`        what a stored batch looks like; constants that need no cryptography
`stored_batch`  a batch to its stored form and back, under one data key
`keys_file`     the bytes of KEYS and KEYS.copy
`keys_disk`     the same as a start finds them
`keyring`       the data keys of one directory: new ones, known ones, rewrapping
`secret_value`  a secret of the metadata, as it is stored
`rotation`      another key-encryption key for a directory that is not served

The engine moves stored batches about as it moves all others. Only the committer and compaction encrypt, only
readers, compaction and the adoption of a log decrypt.
"""
