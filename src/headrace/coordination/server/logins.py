"""Logs clients in to a served tree: what a client claims becomes identities of its :class:`Caller`. No I/O.

``digest`` accepts any ``user:password``. The hash of both is the identity; whether the password is right shows in the
access control lists. Only the super user's hash is known to the server (``super_digest``, ZooKeeper's
``DigestAuthenticationProvider.superDigest``). ``ip`` adds the address, which every client has anyway. ``x509`` adds the
subject of the client's certificate. Any other scheme fails, and a failed login closes the connection, as in ZooKeeper.

A server with ``requires_super`` answers nobody but the super user: a connection must log in before its first other
request. ``headrace start --brokers`` serves its tree in this way.
"""

import hmac

from headrace.coordination.tree.caller import MAX_IDENTITIES, SUPER, Caller, Identity, digest_of

#: ZooKeeper limits a credential only by the size of a frame.
MAX_CREDENTIAL_BYTES = 8 * 1024


class Logins:
    def __init__(self, *, super_digest: str | None = None, requires_super: bool = False) -> None:
        """:param super_digest: ``user:hash``, as :func:`digest_of` returns it. None: there is no super user."""
        assert super_digest is not None or not requires_super, "nobody could log in"
        self._super_digest = super_digest
        self.requires_super = requires_super

    def log_in(self, caller: Caller, scheme: str, credential: bytes | None, subject: str | None) -> str | None:
        """Adds the identities of a login. Returns why the login fails; None if it succeeds.

        :param subject: the subject of the client's certificate, if the client sent one.
        """
        if scheme == "ip":
            return None
        identities = self._identities(scheme, credential, subject)
        if not identities:
            return f"the scheme {scheme:.20} is unknown, or it has no valid credential"
        if not all(map(caller.add, identities)):
            return f"the client has more than {MAX_IDENTITIES} identities"
        return None

    def _identities(self, scheme: str, credential: bytes | None, subject: str | None) -> list[Identity]:
        if scheme == "digest" and credential is not None and len(credential) <= MAX_CREDENTIAL_BYTES:
            digest = digest_of(credential.decode(errors="replace"))
            return [Identity("digest", digest), *([SUPER] if self._is_super(digest) else [])]
        if scheme == "x509" and subject is not None:
            return [Identity("x509", subject)]
        return []

    def _is_super(self, digest: str) -> bool:
        known = self._super_digest
        return known is not None and hmac.compare_digest(digest.encode(), known.encode())
