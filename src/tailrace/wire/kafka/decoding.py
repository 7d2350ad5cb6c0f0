"""Writes the source of a decoder: one function per message class and version, without calls per struct.

Values of fixed size that follow each other, with the length or count behind them, are one struct.unpack_from:

    def decode(data):
        d = bytes(data)
        n = len(d)
        p = 0
        try:
            a2, = unpack_0(d, p)
            p += 2
            ...

The input comes from strangers. A length or count is compared with the bytes that are left before anything is
read or made from it, an array by the smallest size of its element, so that a frame of N bytes costs a
multiple of N whatever it claims. Reading past the end is found by unpack_from or by an index, and turned into
a ProtocolError at the end of the function; nothing else can come out of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.model import ProtocolError
from tailrace.wire.kafka.schema import FIXED, ZERO_UUID, Field, Message, fields_of, read_fields, read_uuid
from tailrace.wire.kafka.source import Source, item_size_min
from tailrace.wire.kafka.tag import read_tag_count, read_tag_extent, skip_tags
from tailrace.wire.kafka.varint import read_uvarint_tail


def decoder_source(message_type: type[Message], version: int, *, flexible: bool) -> Source:
    """The source of `decode(data) -> message` for one version of a message."""
    return _Decoding(message_type, version, flexible).source


class _Decoding:
    def __init__(self, message_type: type[Message], version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.what = f"{message_type.__name__} version {version}"
        self.source = Source(f"decode {self.what}")
        self.source.names |= {
            "unpack_from": struct.unpack_from,
            "StructError": struct.error,
            "ProtocolError": ProtocolError,
            "ZERO_UUID": ZERO_UUID,
            "read_uuid": read_uuid,
            "uvarint_tail": read_uvarint_tail,
            "skip_tags": skip_tags,
            "tag_count": read_tag_count,
            "tag_extent": read_tag_extent,
        }
        self._run: list[tuple[str, str]] = []  # fixed-size values not read yet: letter, variable
        self._function(message_type)

    def _function(self, message_type: type[Message]) -> None:
        add, block = self.source.add, self.source.block
        with block("def decode(data):"):
            add("d = bytes(data)", "n = len(d)", "p = 0")
            with block("try:"):
                made = self._struct(message_type, message_type.__name__)
                add(f"m = {made}")
            with block("except (StructError, IndexError) as error:"):
                self._refuse("cut short", cause="error")
            with block("except UnicodeDecodeError as error:"):
                self._refuse("a string is not UTF-8", cause="error")
            if not message_type.__name__.endswith("Request"):
                with block("if p != n:"):
                    self._refuse("bytes are left over")
            add("return m")

    def _refuse(self, reason: str, *, cause: str = "") -> None:
        ending = f" from {cause}" if cause else ""
        self.source.add(f"raise ProtocolError({f'{self.what}: {reason}'!r}){ending}")

    def _flush(self) -> None:
        if self._run == [("B", "c")]:
            self.source.add("c = d[p]", "p += 1")
        elif self._run:
            layout = struct.Struct(">" + "".join(letter for letter, _ in self._run))
            targets = ", ".join(variable for _, variable in self._run)
            comma = "," if len(self._run) == 1 else ""
            unpack = self.source.name("unpack", layout.unpack_from)
            self.source.add(f"{targets}{comma} = {unpack}(d, p)", f"p += {layout.size}")
            for letter, variable in self._run:
                if letter == "16s":
                    self.source.add(f"{variable} = read_uuid({variable})")
        self._run = []

    def _struct(self, message_type: type[Message], path: str) -> str:
        """Reads a struct, and gives the expression that makes it."""
        plain, tagged = fields_of(message_type, self.version)
        variables = {field.name: f"v{self.source.serial()}" for field in (*plain, *tagged)}
        for field in plain:
            self._field(field, variables[field.name], f"{path}.{field.name}")
        if self.flexible:
            self._tags(tagged, variables, path)
        else:
            self._flush()
        values = [variables.get(field.name) or self._default(field) for field in read_fields(message_type)]
        return f"{self.source.name(message_type.__name__, message_type)}({', '.join(values)})"

    def _default(self, field: Field) -> str:
        if field.default is None or isinstance(field.default, (int, str, bytes, float, list)):
            return repr(field.default)
        if isinstance(field.default, Message):
            return f"{self.source.name(type(field.default).__name__, type(field.default))}()"
        return self.source.name("default", field.default)

    def _field(self, field: Field, variable: str, path: str) -> None:
        if field.array:
            self._array(field, variable, path)
        elif field.struct is not None and field.nullable(self.version):
            self._nullable_struct(field, variable, path)
        else:
            self._item(field, variable, path, nullable=field.nullable(self.version))

    def _item(self, field: Field, variable: str, path: str, *, nullable: bool = False) -> None:
        if field.struct is not None:
            self.source.add(f"{variable} = {self._struct(field.struct, path)}")
        elif field.kind in FIXED:
            self._run.append((FIXED[field.kind][0], variable))
        elif field.kind == "uuid":
            self._run.append(("16s", variable))
        else:
            self._text(field, variable, path, nullable=nullable)

    def _text(self, field: Field, variable: str, path: str, *, nullable: bool) -> None:
        with self._counted("h" if field.kind == "string" else "i", variable, path, nullable=nullable):
            self.source.add("q = p + c")
            with self.source.block("if q > n:"):
                self._refuse(f"{path} is longer than the message")
            self.source.add(f"{variable} = d[p:q]{'.decode()' if field.kind == 'string' else ''}", "p = q")

    def _array(self, field: Field, variable: str, path: str) -> None:
        size = item_size_min(field, self.version, flexible=self.flexible)
        assert size > 0, f"{path}: an element without bytes has no bound"
        with self._counted("i", variable, path, nullable=field.nullable(self.version)):
            with self.source.block(f"if c * {size} > n - p:" if size > 1 else "if c > n - p:"):
                self._refuse(f"{path} has more elements than the message can hold")
            if field.kind in FIXED:
                layout = f'f">{{c}}{FIXED[field.kind][0]}"'
                self.source.add(f"{variable} = list(unpack_from({layout}, d, p))", f"p += {size} * c")
            else:
                self._elements(field, variable, path)

    def _elements(self, field: Field, variable: str, path: str) -> None:
        item = f"v{self.source.serial()}"
        self.source.add(f"{variable} = []")
        with self.source.block("for _ in range(c):"):
            if field.struct is not None:
                item = self._struct(field.struct, path)
            else:
                self._item(field, item, path)
                self._flush()
            self.source.add(f"{variable}.append({item})")

    @contextmanager
    def _counted(self, letter: str, variable: str, path: str, *, nullable: bool) -> Iterator[None]:
        """Reads a length or count into c; what is emitted inside runs where it is not null."""
        if self.flexible:
            self._run.append(("B", "c"))
            self._flush()
            with self.source.block("if c > 127:"):
                self.source.add("c, p = uvarint_tail(d, p, c)")
            self.source.add("c -= 1")
        else:
            self._run.append((letter, "c"))
            self._flush()
        with self.source.block("if c < 0:"):
            if nullable and not self.flexible:
                with self.source.block("if c != -1:"):
                    self._refuse(f"{path} has a negative length")
            if nullable:
                self.source.add(f"{variable} = None")
            else:
                self._refuse(f"{path} has a negative length" if not self.flexible else f"{path} is null")
        if nullable:
            with self.source.block("else:"):
                yield
        else:
            yield

    def _nullable_struct(self, field: Field, variable: str, path: str) -> None:
        """A byte says whether the struct follows: 1, or -1 for null."""
        assert field.struct is not None
        self._run.append(("b", "c"))
        self._flush()
        with self.source.block("if c == 1:"):
            self.source.add(f"{variable} = {self._struct(field.struct, path)}")
        with self.source.block("elif c == -1:"):
            self.source.add(f"{variable} = None")
        with self.source.block("else:"):
            self._refuse(f"{path} is neither null nor a struct")

    def _tags(self, tagged: list[Field], variables: dict[str, str], path: str) -> None:
        """The tag buffer: known tags into their variables, unknown ones skipped."""
        add, block, serial = self.source.add, self.source.block, self.source.serial()
        self._run.append(("B", "c"))
        self._flush()
        if not tagged:
            with block("if c:"):
                add("p = skip_tags(d, p - 1)")
            return
        for field in tagged:
            add(f"{variables[field.name]} = {self._default(field)}")
        with block("if c:"):
            add("c, p = tag_count(d, p - 1)")
            with block("for _ in range(c):"):
                add(f"tag{serial}, p, end{serial} = tag_extent(d, p)")
                for field in tagged:
                    with block(f"if tag{serial} == {field.tag}:"):
                        self._field(field, variables[field.name], f"{path}.{field.name}")
                        self._flush()
                        with block(f"if p != end{serial}:"):
                            self._refuse(f"{path}.{field.name} does not fill its tag")
                add(f"p = end{serial}")
