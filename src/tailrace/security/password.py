"""Rules for new passwords and for the names of users, and passwords made by chance.

A password has 8 to 256 characters, is none of the commonest and not the name of its user. There are no rules
of composition: they make passwords harder to remember and no harder to guess (NIST SP 800-63B section 5.1.1).
"""

from __future__ import annotations

import secrets
from typing import Final

from tailrace.model import BrokerError, ErrorCode
from tailrace.security.secret import Secret

LENGTH_MIN: Final = 8
LENGTH_MAX: Final = 256
NAME_LENGTH_MAX: Final = 128
_RESERVED: Final = frozenset({"ANONYMOUS", "token"})
_GENERATED_BYTES: Final = 18

_COMMONEST: Final = frozenset(
    """
    00000000 01234567 0987654321 10203040 11111111 111111111 1111111111 11223344 1122334455 12121212
    12341234 12344321 12345678 123456789 1234567890 12345678910 123456987 1234qwer 123123123 123321123
    147258369 1q2w3e4r 1q2w3e4r5t 1qaz2wsx 1qazxsw2 22222222 55555555 66666666 77777777 789456123 87654321
    88888888 987654321 99999999 aa123456 aa12345678 abc12345 abcd1234 abcdefgh abcdefg1 access14 admin123
    admin1234 administrator alexander asdasdasd asdfasdf asdfghjk asdfghjkl baseball basketball blink182
    butterfly changeit changeme changeme1 charlie1 chocolate computer corvette danielle default1 dragon123
    elephant fdsafdsa football football1 football2 freedom1 fuckyou1 galaxies guest123 hello123 helloworld
    iloveyou iloveyou1 iloveyou2 internet jennifer jonathan kafkakafka letmein1 letmein123 liverpool
    master123 maverick mercedes metallica michelle midnight monkey123 mustang1 myspace1 p@ssw0rd p@ssword
    pa$$word pass1234 passw0rd password password! password1 password12 password123 password1234 password2
    passwort passwort1 pokemon1 princess princess1 qazwsxedc qwer1234 qwerasdf qwerty12 qwerty123
    qwerty1234 qwertyui qwertyuiop rush2112 samantha scorpion secret12 secret123 srinivas starwars
    steelers steven12 success1 sunshine sunshine1 superman superman1 tailrace tailrace1 test1234 testtest
    trustno1 user1234 victoria welcome1 welcome123 whatever william1 zaq12wsx zaq1zaq1 zxcvbnm1 zxcvbnmz
    """.split()  # noqa: SIM905 - a list of literals would be one word a line
)
"""What is tried first, of at least LENGTH_MIN characters."""


def check_password(password: Secret, *, user: str) -> None:
    """UNACCEPTABLE_CREDENTIAL for a password that must not be used; the text does not repeat it."""
    text = password.reveal()
    if len(text) < LENGTH_MIN:
        raise _refused(f"a password has at least {LENGTH_MIN} characters, and this one has {len(text)}")
    if len(text) > LENGTH_MAX:
        raise _refused(f"a password has at most {LENGTH_MAX} characters, and this one has {len(text)}")
    if any(not each.isprintable() for each in text):
        raise _refused("a password has no control characters, such as line breaks")
    if text.lower() in _COMMONEST or len(set(text)) == 1:
        raise _refused("this password is one of the commonest, which are tried first. Choose another one")
    if text.lower() == user.lower():
        raise _refused("a password is not the name of its user. Choose another one")


def check_user_name(name: str) -> None:
    """INVALID_REQUEST for a name that no user can have."""
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise _bad_name(f"it has {len(name)} characters, and 1 to {NAME_LENGTH_MAX} are allowed")
    if ":" in name or any(not each.isprintable() or each.isspace() for each in name):
        raise _bad_name("spaces, colons and control characters are not allowed")
    if name in _RESERVED:
        raise _bad_name("it is reserved")


def generate_password() -> Secret:
    """A password with 144 random bits."""
    return Secret(secrets.token_urlsafe(_GENERATED_BYTES))


def _refused(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.UNACCEPTABLE_CREDENTIAL)


def _bad_name(reason: str) -> BrokerError:
    return BrokerError(f"no user can have this name: {reason}", code=ErrorCode.INVALID_REQUEST)
