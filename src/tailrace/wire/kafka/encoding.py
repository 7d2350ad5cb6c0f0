"""Writes the source of an encoder: one function per message class and version, without calls per struct.

Fields of fixed size that follow each other, with the length of the string behind them, are one struct.pack;
an empty tag buffer is a pad byte of the same call. The pieces are joined once, at the end:

    def encode(m1):
        out = []
        w = out.append
        s = m1.group_id.encode()
        w(pack_0(len(s)))
        w(s)
        ...
        return b"".join(out)
"""

from __future__ import annotations

import struct

from tailrace.wire.kafka.schema import FIXED, Field, Message, fields_of
from tailrace.wire.kafka.source import Source
from tailrace.wire.kafka.varint import ONE_BYTE, write_uvarint


def encoder_source(message_type: type[Message], version: int, *, flexible: bool) -> Source:
    """The source of `encode(m1) -> bytes` for one version of a message."""
    return _Encoding(message_type, version, flexible).source


class _Encoding:
    def __init__(self, message_type: type[Message], version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source(f"encode {message_type.__name__} version {version}")
        self.source.names |= {"pack": struct.pack, "uvarint": write_uvarint, "ONE_BYTE": ONE_BYTE}
        self._out = "w"  # the append that takes the pieces; inside a tagged field another one
        self._run: list[tuple[str, str]] = []  # fixed-size values not written yet: letter, expression
        with self.source.block("def encode(m1):"):
            self.source.add("out = []", "w = out.append")
            self._struct(message_type, f"m{self.source.serial()}")
            self._flush()
            self.source.add('return b"".join(out)')

    def _flush(self) -> None:
        if self._run == [("x", "")]:
            self.source.add(f'{self._out}(b"\\0")')
        elif self._run:
            layout = ">" + "".join(letter for letter, _ in self._run)
            values = ", ".join(value for _, value in self._run if value)
            pack = self.source.name("pack", struct.Struct(layout).pack)
            self.source.add(f"{self._out}({pack}({values}))")
        self._run = []

    def _struct(self, message_type: type[Message], variable: str) -> None:
        plain, tagged = fields_of(message_type, self.version)
        for field in plain:
            self._field(field, f"{variable}.{field.name}")
        if tagged:
            self._tags(tagged, variable)
        elif self.flexible:
            self._run.append(("x", ""))

    def _field(self, field: Field, value: str) -> None:
        if field.array:
            self._array(field, value)
        elif field.struct is not None and field.nullable(self.version):
            self._nullable_struct(field, value)
        elif field.kind in ("string", "bytes"):
            self._text(field, value, field.null is not None)
        else:
            self._item(field, value)

    def _item(self, field: Field, value: str) -> None:
        if field.struct is not None:
            self._struct(field.struct, value)
        elif field.kind in FIXED:
            self._run.append((FIXED[field.kind][0], value))
        elif field.kind == "uuid":
            self._run.append(("16s", f"{value}.bytes"))
        else:
            self._text(field, value, False)

    def _text(self, field: Field, value: str, null: bool) -> None:
        """A string or bytes. `null`: the value may be None, also in versions that must send it as empty."""
        encoded = f"{value}.encode()" if field.kind == "string" else value
        if null:
            self.source.add(f"s = {value}")
            with self.source.block("if s is None:"):
                self.source.add('s = b""', f"n = {-1 if field.nullable(self.version) else 0}")
            with self.source.block("else:"):
                self.source.add(*([] if field.kind == "bytes" else ["s = s.encode()"]), "n = len(s)")
        else:
            self.source.add(f"s = {encoded}", *(["n = len(s)"] if self.flexible else []))
        self._length("n" if null or self.flexible else "len(s)", "h" if field.kind == "string" else "i")
        self.source.add(f"{self._out}(s)")

    def _length(self, length: str, letter: str) -> None:
        if self.flexible:
            self._flush()
            self.source.add(
                f"{self._out}(ONE_BYTE[{length} + 1] if {length} < 127 else uvarint({length} + 1))"
            )
        else:
            self._run.append((letter, length))
            self._flush()

    def _array(self, field: Field, value: str) -> None:
        items = f"x{self.source.serial()}"
        self.source.add(f"{items} = {value}")
        if field.null is not None:
            with self.source.block(f"if {items} is None:"):
                self.source.add(f"{items} = ()", f"n = {-1 if field.nullable(self.version) else 0}")
            with self.source.block("else:"):
                self.source.add(f"n = len({items})")
        else:
            self.source.add(f"n = len({items})")
        self._length("n", "i")
        if field.kind in FIXED:
            layout = f'f">{{len({items})}}{FIXED[field.kind][0]}"'
            self.source.add(f"{self._out}(pack({layout}, *{items}))")
            return
        item = f"m{self.source.serial()}"
        with self.source.block(f"for {item} in {items}:"):
            self._item(field, item)
            self._flush()

    def _nullable_struct(self, field: Field, value: str) -> None:
        """A byte says whether the struct follows: 1, or -1 for null."""
        assert field.struct is not None
        item = f"m{self.source.serial()}"
        self._flush()
        self.source.add(f"{item} = {value}")
        with self.source.block(f"if {item} is None:"):
            self.source.add(f'{self._out}(b"\\xff")')
        with self.source.block("else:"):
            self.source.add(f'{self._out}(b"\\x01")')
            self._struct(field.struct, item)
            self._flush()

    def _tags(self, tagged: list[Field], variable: str) -> None:
        """The tag buffer of a struct that has tagged fields: count, then tag, size and value of each."""
        self._flush()
        outer = self._out
        tags = f"tags{self.source.serial()}"
        self.source.add(f"{tags} = []")
        for field in tagged:
            value = f"{variable}.{field.name}"
            default = self.source.name("default", field.default)
            with self.source.block(f"if {value} != {default}:"):
                part = f"part{self.source.serial()}"
                self._out = f"{part}.append"
                self.source.add(f"{part} = []")
                self._field(field, value)
                self._flush()
                self.source.add(f'{part} = b"".join({part})')
                self.source.add(f"{tags} += (uvarint({field.tag}), uvarint(len({part})), {part})")
        self._out = outer
        self.source.add(f"{outer}(uvarint(len({tags}) // 3))", f'{outer}(b"".join({tags}))')
