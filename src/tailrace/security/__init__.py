"""Who a client is: users, their passwords, and the mechanisms by which they log in.

`secret`         a text that does not show itself
`user`           a user as it is stored, and the port `UserStore`; `users` are those of a node
`verifier`       what is stored of a password; `password` has the rules for new ones
`hashing`        slow functions in a bounded pool; `remembered`: passwords checked a moment ago
`authenticator`  logins for the listeners, over `sasl/`, the mechanisms as machines without I/O
`guessing`       how long failures wait; `failure`: what is told of them

Sockets, stores and the clock of logins are given from outside.
"""

from tailrace.security.authenticator import (
    BASIC,
    CONSOLE,
    MECHANISMS,
    Authenticator,
    AuthenticatorPort,
    Login,
    LoginCounts,
    Step,
)
from tailrace.security.failure import AuthenticationFailed, LoginsBusy, UnknownUser
from tailrace.security.sasl.plain import PLAIN
from tailrace.security.secret import Secret
from tailrace.security.user import StoredUsers, User, UserStore
from tailrace.security.users import Users
from tailrace.security.verifier import SCRAM_SHA_256, SCRAM_SHA_512, Verifier

__all__ = [
    "BASIC",
    "CONSOLE",
    "MECHANISMS",
    "PLAIN",
    "SCRAM_SHA_256",
    "SCRAM_SHA_512",
    "AuthenticationFailed",
    "Authenticator",
    "AuthenticatorPort",
    "Login",
    "LoginCounts",
    "LoginsBusy",
    "Secret",
    "Step",
    "StoredUsers",
    "UnknownUser",
    "User",
    "UserStore",
    "Users",
    "Verifier",
]
