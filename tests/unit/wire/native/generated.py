"""What the tests of the native codec draw from: properties, records, frames."""

from __future__ import annotations

from hypothesis import strategies as st

# Everything that UTF-8 can express, often the letters that mean something.
texts = st.text(
    st.one_of(st.sampled_from("a_=,-\0é😀"), st.characters(exclude_categories=["Cs"])), max_size=12
)
property_keys = texts.map(lambda text: text.replace("=", "").replace("\0", "")).filter(bool)
property_values = texts.map(lambda text: text.replace("\0", ""))
properties = st.dictionaries(property_keys, property_values, max_size=6)

binaries = st.one_of(st.binary(max_size=20), texts.map(str.encode))
headers = st.lists(st.tuples(texts, st.none() | binaries), max_size=5)
plain_headers = st.dictionaries(
    property_keys.filter(lambda key: key[0] != "_"), property_values.map(str.encode), max_size=5
).map(lambda chosen: list(chosen.items()))

int64 = st.integers(-(2**63), 2**63 - 1)
sequences = st.integers(0, 2**63 - 1)
types = st.integers(0, 2**32 - 1)
