"""The types of values: declared by a schema, and read without a jar.

    schema.py         the text that declares a schema: DDL, a file, a registry's address
    json_schema.py    JSON Schema to Spark's types; avro_schema.py: those of Avro
    registry.py       schemas by their id or their subject; reference.py: with those that they refer to
    decoding.py       batches of values to rows, JSON by Arrow's reader; convert.py: one value to a type
    avro.py           values that are Avro; protobuf.py: schemas and values of Protobuf

A schema says how values are encoded, too: DDL and JSON Schema describe JSON. What a declared type cannot hold
is a bad row; what becomes of it is decided by the reader of the values.
"""
