"""SASL mechanisms as machines without I/O: bytes in, bytes out, or AuthenticationFailed.

`scram_message`   the four messages of SCRAM (RFC 5802): read and written
`scram_server`    the server's side of one exchange
`scram_client`    the client's side
`plain`           the one message of PLAIN (RFC 4616)
"""
