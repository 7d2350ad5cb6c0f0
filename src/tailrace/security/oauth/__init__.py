"""OAuth 2.0: JSON Web Tokens of an issuer as proofs of who a client is (RFC 7519, RFC 9068).

`config`   what a listener believes: issuer, audience, where the keys are
`key_set`  the issuer's public keys, read strictly; `keys` fetches and keeps them
`jwt`      whether a token is one of the issuer's, and for us; pure
`issuer`   all of it together: who a token is
`fetch`    one bounded HTTP request

Signatures are checked by joserfc (extra `auth`), which is imported when a listener with `oauth` opens.
"""
