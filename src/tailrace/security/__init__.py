"""Who a client is: users, their passwords, and the mechanisms by which they log in.

`secret`         a text that does not show itself
`user`           a user as it is stored, and the port `UserStore`; `users` are those of a node
`disabled`       principals that are no users of the store, and may not come
`api_token`      an API token as it is written and stored, and the port `TokenStore`; `tokens` are a node's
`verifier`       what is stored of a password; `password` has the rules for new ones
`hashing`        slow functions in a bounded pool; `remembered`: passwords checked a moment ago
`authenticator`  logins for the listeners, over `sasl/`, the mechanisms as machines without I/O
`authenticated`  what a login comes to; `mechanism` has the names, `standing` says whether it still holds
`audit`          what is written down of security; `audited_login` does so for the logins of a listener
`guessing`       how long failures wait; `failure`: what is told of them
`messages/`      encryption from client to client; `decryption`: why a message is not handed out

Sockets, stores and the clock of logins are given from outside.
"""

from tailrace.security.api_token import ApiToken, StoredTokens, TokenStore
from tailrace.security.authenticated import NOT_AUTHENTICATED, Authenticated
from tailrace.security.authenticator import (
    Authenticator,
    AuthenticatorPort,
    Login,
    LoginCounts,
    Step,
)
from tailrace.security.disabled import Disabled, DisabledStore, parse_principal
from tailrace.security.failure import AuthenticationFailed, LoginsBusy, UnknownToken, UnknownUser
from tailrace.security.mechanism import BASIC, CERTIFICATE, CONSOLE, MECHANISMS, OAUTHBEARER, PLAIN, TOKEN
from tailrace.security.secret import Secret
from tailrace.security.standing import Standing
from tailrace.security.tokens import Tokens
from tailrace.security.user import StoredUsers, User, UserStore
from tailrace.security.users import Users
from tailrace.security.verifier import SCRAM_SHA_256, SCRAM_SHA_512, Verifier

__all__ = [
    "BASIC",
    "CERTIFICATE",
    "CONSOLE",
    "MECHANISMS",
    "NOT_AUTHENTICATED",
    "OAUTHBEARER",
    "PLAIN",
    "SCRAM_SHA_256",
    "SCRAM_SHA_512",
    "TOKEN",
    "ApiToken",
    "Authenticated",
    "AuthenticationFailed",
    "Authenticator",
    "AuthenticatorPort",
    "Disabled",
    "DisabledStore",
    "Login",
    "LoginCounts",
    "LoginsBusy",
    "Secret",
    "Standing",
    "Step",
    "StoredTokens",
    "StoredUsers",
    "TokenStore",
    "Tokens",
    "UnknownToken",
    "UnknownUser",
    "User",
    "UserStore",
    "Users",
    "Verifier",
    "parse_principal",
]
