r"""Java's regular expressions as Python's, for names of topics.

`subscribePattern` is a java.util.regex.Pattern in Spark's Kafka source. Python reads most alike, but not:

    [a-z&&[^q]]  [a-c[x-z]]     classes inside classes
    \p{Lower}  \P{Alnum}  \pL   classes by name
    \Q...\E  \z  \h  \e         quotations and some escapes
    (?<name>...)  \k<name>      named groups
    a(?i)b                      flags from here to the end of the group

Names of topics are ASCII, so a class is a set of ASCII characters, and the flags that concern other
characters or lines have no effect. The whole name has to match.
"""

from __future__ import annotations

import re
import string

from tailrace.model import ConfigError

_ALL = frozenset(map(chr, range(128)))
_LETTERS = frozenset(string.ascii_letters)
_DIGITS = frozenset(string.digits)
_SPACES = frozenset(" \t\n\x0b\f\r")
_VERTICAL = frozenset("\n\x0b\f\r")
_HORIZONTAL = frozenset(" \t")
_ESCAPES = {"d": _DIGITS, "w": _LETTERS | _DIGITS | {"_"}, "s": _SPACES, "h": _HORIZONTAL, "v": _VERTICAL}
_NAMED = {
    "lower": frozenset(string.ascii_lowercase),
    "upper": frozenset(string.ascii_uppercase),
    "ascii": _ALL,
    "alpha": _LETTERS,
    "digit": _DIGITS,
    "alnum": _LETTERS | _DIGITS,
    "punct": frozenset(string.punctuation),
    "graph": _LETTERS | _DIGITS | frozenset(string.punctuation),
    "print": _LETTERS | _DIGITS | frozenset(string.punctuation) | {" "},
    "blank": _HORIZONTAL,
    "cntrl": frozenset(chr(each) for each in (*range(32), 127)),
    "xdigit": frozenset(string.hexdigits),
    "space": _SPACES,
}
# Other names of the same: categories of Unicode, Java's own methods, binary properties.
_SAME = {"l": "alpha", "ll": "lower", "lu": "upper", "n": "digit", "nd": "digit", "p": "punct"} | {
    f"{prefix}{longer}": name
    for longer, name in {
        "alphabetic": "alpha",
        "letter": "alpha",
        "lowercase": "lower",
        "uppercase": "upper",
        "digit": "digit",
        "letterordigit": "alnum",
        "whitespace": "space",
    }.items()
    for prefix in ("is", "java", "javais")
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_PLACES = {"z": r"\Z", "Z": r"\Z", "A": r"\A", "G": r"\A", "b": r"\b", "B": r"\B"}
_INLINE = re.compile(r"\(\?(?P<on>[a-zA-Z]*)(?:-(?P<off>[a-zA-Z]+))?(?P<end>[):])")
_NO_EFFECT = str.maketrans("", "", "duU")


def compile_java(option: str, text: str) -> re.Pattern[str]:
    """The pattern of an option; ConfigError if it is not a regular expression."""
    try:
        return re.compile(_Translation(text).whole(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"option {option}={text!r} is not a regular expression: {error}") from None


class _Translation:
    """One pass over a pattern. `at` is the next character to be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._ignores_case = any("i" in found["on"] for found in _INLINE.finditer(text))

    def whole(self) -> str:
        made: list[str] = []
        scopes: list[list[str]] = [[]]  # by group: the flags that were opened in it and end with it
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "\\":
                made.append(self._escape())
            elif here == "[":
                made.append(self._class())
            elif here == "(":
                made.append(self._open(scopes))
            elif here == ")" and len(scopes) > 1:
                made.append(")" * len(scopes.pop()) + ")")
                self.at += 1
            elif here == "|":
                # Flags go on after an alternative, and a group of Python's does not.
                made.append(")" * len(scopes[-1]) + "|" + "".join(scopes[-1]))
                self.at += 1
            else:
                made.append(here)
                self.at += 1
        return "".join(made) + ")" * len(scopes[0])

    def _open(self, scopes: list[list[str]]) -> str:
        found = _INLINE.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            on, off = found["on"].translate(_NO_EFFECT), (found["off"] or "").translate(_NO_EFFECT)
            opened = f"(?{on}{'-' + off if off else ''}:"
            if found["end"] == ":":
                scopes.append([])
            else:
                scopes[-1].append(opened)
            return opened
        scopes.append([])
        self.at += 1
        if re.match(r"\?<[A-Za-z]", self.text[self.at :]):
            self.at += 1
            return "(?P"
        return "("

    def _escape(self) -> str:
        """An escape outside of a class."""
        following = self.text[self.at + 1 : self.at + 2]
        if following == "Q":
            return re.escape(self._quotation())
        if following in _PLACES:
            self.at += 2
            return _PLACES[following]
        if following == "k" and (found := re.compile(r"\\k<(\w+)>").match(self.text, self.at)):
            self.at = found.end()
            return f"(?P={found[1]})"
        if following.isdigit() and following != "0":
            self.at += 2
            return "\\" + following
        return _as_class(self._set(), is_negated=False)

    def _quotation(self) -> str:
        end = self.text.find("\\E", self.at)
        quoted = self.text[self.at + 2 :] if end < 0 else self.text[self.at + 2 : end]
        self.at = len(self.text) if end < 0 else end + 2
        return quoted

    def _set(self) -> frozenset[str]:
        """The characters that an escape stands for; one, if it is a character."""
        kind = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if kind.lower() in _ESCAPES:
            return _ESCAPES[kind] if kind.islower() else _ALL - _ESCAPES[kind.lower()]
        if kind in "pP" and kind:
            found = _named(self._match(r"\{(\^?\w+(?:=\w+)?)\}|(\w)", "a name is missing after \\p"))
            return found if kind == "p" else _ALL - found
        if kind in _CONTROLS:
            return frozenset(_CONTROLS[kind])
        if kind == "x":
            return frozenset(chr(int(self._match(r"\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2})", "bad \\x"), 16)))
        if kind == "u":
            return frozenset(chr(int(self._match("([0-9a-fA-F]{4})", "bad \\u"), 16)))
        if kind == "0":
            return frozenset(chr(int(self._match("([0-3]?[0-7]{1,2})", "bad \\0"), 8)))
        if kind == "c":
            return frozenset(chr(ord(self._match("(.)", "bad \\c")) ^ 64))
        if not kind or kind.isalnum():
            raise re.error(f"\\{kind} is not an escape", self.text, self.at - 2)
        return frozenset(kind)

    def _match(self, pattern: str, complaint: str) -> str:
        found = re.compile(pattern, re.DOTALL).match(self.text, self.at)
        if found is None:
            raise re.error(complaint, self.text, self.at)
        self.at = found.end()
        return next(each for each in found.groups() if each is not None)

    # ---- classes

    def _class(self) -> str:
        """A class at the top. A negation stays one where case is ignored, so that it holds for both cases."""
        began = self.at
        is_negated = self.text.startswith("[^", began)
        self.at += 2 if is_negated else 1
        members, is_plain = self._members()
        if self._ignores_case and not is_plain:
            raise re.error("classes inside classes beside the flag i are not supported", self.text, began)
        return _as_class(members, is_negated=is_negated)

    def _members(self) -> tuple[frozenset[str], bool]:
        """What is in a class up to its bracket, not negated, and whether it has no classes inside."""
        found: frozenset[str] = frozenset()
        kept = _ALL
        is_first = is_plain = True
        while True:
            if self.at >= len(self.text):
                raise re.error("a class is not closed", self.text, len(self.text))
            if self.text[self.at] == "]" and not is_first:
                self.at += 1
                return found & kept, is_plain
            if self.text.startswith("&&", self.at):
                self.at += 2
                kept, found, is_plain = kept & found, frozenset(), False
                continue
            is_plain &= self.text[self.at] != "["
            found |= self._member()
            is_first = False

    def _member(self) -> frozenset[str]:
        here = self.text[self.at]
        if here == "[":
            is_negated = self.text.startswith("[^", self.at)
            self.at += 2 if is_negated else 1
            inner, _ = self._members()
            return _ALL - inner if is_negated else inner
        if self.text.startswith("\\Q", self.at):
            return frozenset(self._quotation())
        first = self._one()
        if len(first) != 1 or not re.compile(r"-[^\]\[]").match(self.text, self.at):
            return first
        self.at += 1
        last = self._one()
        low, high = ord(min(first)), ord(min(last, default="\0"))
        if len(last) != 1 or high < low:
            raise re.error("a range of a class has no order", self.text, self.at)
        return frozenset(chr(each) for each in range(low, min(high, 127) + 1))

    def _one(self) -> frozenset[str]:
        if self.text[self.at] == "\\":
            return self._set()
        self.at += 1
        return frozenset(self.text[self.at - 1])


def _named(name: str) -> frozenset[str]:
    negated, plain = name.startswith("^"), name.lstrip("^").lower()
    plain = plain.rpartition("=")[2]
    found = _NAMED.get(_SAME.get(plain, plain.removeprefix("is")))
    if found is None:
        raise re.error(f"the class {name} is not known")
    return _ALL - found if negated else found


def _as_class(members: frozenset[str], *, is_negated: bool) -> str:
    """A class of Python's. An empty one matches nothing."""
    if not members:
        return "." if is_negated else r"(?!)"
    return f"[{'^' if is_negated else ''}{''.join(map(_hex, sorted(members)))}]"


def _hex(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 256 else re.escape(character)
