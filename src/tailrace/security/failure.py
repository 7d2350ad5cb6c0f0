"""Why a login did not succeed, as its client is told."""

from __future__ import annotations

from tailrace.model import BrokerError, ErrorCode


class AuthenticationFailed(BrokerError):
    """The client did not prove who it is. The text is the same for every user, known or not."""

    user = ""
    """The user that it claimed to be, if there is one: for the audit log, never for the client."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.SASL_AUTHENTICATION_FAILED)


class LoginsBusy(BrokerError):
    """More passwords wait to be checked than may wait: the client may try again."""

    retriable = True

    def __init__(self) -> None:
        super().__init__(
            "too many logins are being checked. Try again in a moment", code=ErrorCode.BROKER_NOT_AVAILABLE
        )


class UnknownUser(BrokerError):
    """There is no user of this name: told to who may see users."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no user {name!r}. Try: tailrace user list", code=ErrorCode.RESOURCE_NOT_FOUND
        )


class UnknownToken(BrokerError):
    """There is no API token of this id, or it is none of the caller's business: the answer is the same."""

    def __init__(self) -> None:
        super().__init__(
            "there is no API token of this id. Try: tailrace token list", code=ErrorCode.RESOURCE_NOT_FOUND
        )


def wrong_token() -> AuthenticationFailed:
    """The one answer to a token that is unknown, over or revoked, or whose owner is disabled."""
    return AuthenticationFailed(
        "authentication failed (API token): the token is wrong, over or revoked, or its owner is disabled. "
        "Create another one with: tailrace token create"
    )


def disabled_principal() -> AuthenticationFailed:
    """The token is good, and its principal may not come."""
    return AuthenticationFailed("authentication failed (OAUTHBEARER): the principal of the token is disabled")


def wrong_credentials(mechanism: str) -> AuthenticationFailed:
    """The one answer to a wrong password, an unknown user and a disabled user."""
    return AuthenticationFailed(
        f"authentication failed ({mechanism}): the user name or the password is wrong, or the user is "
        "disabled. The broker's administrator sets passwords with: tailrace user passwd NAME"
    )


def malformed(mechanism: str, reason: str) -> AuthenticationFailed:
    """The message is not one of the mechanism; the reason never repeats what the client sent."""
    return AuthenticationFailed(f"authentication failed: the {mechanism} message is not valid: {reason}")
