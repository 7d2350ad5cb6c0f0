"""The ways to prove who a client is, as sessions, metrics and the audit name them.

A principal is a user of this node, or it comes from elsewhere: from an issuer of JWTs or from a certificate.
What is not known here counts as a user of the node, so that a login of a new kind ends with its user.
"""

from __future__ import annotations

from typing import Final

from tailrace.security.verifier import HASHES

PLAIN: Final = "PLAIN"
BASIC: Final = "Basic"
"""HTTP's way to send a password."""
CONSOLE: Final = "Console"
"""A password on the console's login page."""
TOKEN: Final = "token"
"""An API token, in whatever carried it."""
OAUTHBEARER: Final = "OAUTHBEARER"
"""A JWT, in SASL and as HTTP Bearer."""
CERTIFICATE: Final = "certificate"
"""The certificate of a TLS client."""

MECHANISMS: Final = (*HASHES, PLAIN, OAUTHBEARER)
"""The SASL mechanisms that there are."""
PASSWORD_MECHANISMS: Final = (*HASHES, PLAIN)
"""Those by which a user proves a password."""
FROM_ELSEWHERE: Final = frozenset({OAUTHBEARER, CERTIFICATE})
"""Those whose principals are not among the users of the node."""
