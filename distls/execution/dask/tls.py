"""TLS certificates: three files, validated before anything is started or connected to."""

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from distls.storage.errors import ParameterError

_ANSWER_SECONDS = 3


@dataclass(frozen=True)
class Certificates:
    """The trusted authority, and the certificate of this side with its key."""

    ca: Path  # Certificate of the authority that signed those of both sides, in PEM form like all of them
    cert: Path  # The own certificate and its key, which has no passphrase
    key: Path

    def __post_init__(self) -> None:
        """Make the paths absolute: workers have other current folders."""
        for name in ("ca", "cert", "key"):
            # Frozen, as it is part of keys; set here once.
            object.__setattr__(self, name, Path(getattr(self, name)).absolute())

    def check(self) -> None:
        """Raise ParameterError, naming the file, for one that cannot be read or is not what it should be."""
        for option, path in (("--tls-ca", self.ca), ("--tls-cert", self.cert), ("--tls-key", self.key)):
            try:
                path.read_bytes()
            except OSError as error:
                raise ParameterError(f"{option} {path}: {(error.strerror or str(error)).lower()}") from None
        for option, path in (("--tls-ca", self.ca), ("--tls-cert", self.cert)):
            if not _holds_certificate(path):
                raise ParameterError(f"{option} {path}: no certificate in PEM form is in it")
        try:
            self.context()
        except ssl.SSLError as error:
            mismatch = "MISMATCH" in (error.reason or "")
            what = f"not the key of --tls-cert {self.cert}" if mismatch else "no key in PEM form is in it"
            raise ParameterError(f"--tls-key {self.key}: {what}") from None

    def context(self) -> ssl.SSLContext:
        """Return a context like Dask's: both sides show certificates, host names are not checked."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Dask's certificates name no hosts.
        context.check_hostname = False
        # Authorities made by hand often lack extensions that strict checks ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.load_verify_locations(self.ca)
        context.load_cert_chain(self.cert, self.key, password=self._refuse_passphrase)
        return context

    def _refuse_passphrase(self) -> str:
        # otherwise OpenSSL would ask for it on the terminal, in every worker
        raise ParameterError(
            f"--tls-key {self.key}: it is protected by a passphrase; write one without, readable by you only"
        )


def certificates_of(ca: Path | None, cert: Path | None, key: Path | None) -> Certificates | None:
    """Return the certificates that the options name, checked; None without any.

    Raises ParameterError if only some are named, or a file cannot be used.
    """
    given = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
    missing = [option for option, path in given.items() if path is None]
    if len(missing) == len(given):
        return None
    if ca is None or cert is None or key is None:
        raise ParameterError(
            f"TLS needs --tls-ca, --tls-cert and --tls-key together; {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing"
        )
    made = Certificates(ca, cert, key)
    made.check()
    return made


def _holds_certificate(path: Path) -> bool:
    try:
        # OpenSSL itself decides what is a certificate.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


@contextlib.contextmanager
def private_files(folder: Path | None, contents: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Write files (name -> contents) that only this user can read; yield their paths and remove them at the end.

    `folder` is new or empty, and closed to other users; None for a temporary one. Raises ParameterError if it is not.
    """
    with contextlib.ExitStack() as undo:
        if folder is None:
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="distls-tls-")))
        elif _made_private(folder):
            undo.callback(folder.rmdir)
        paths = {name: folder.absolute() / name for name in contents}
        for name, path in paths.items():
            # Exclusive, and closed to others from the start: a moment of open permissions is enough to read a key.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            undo.callback(path.unlink, missing_ok=True)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(contents[name])
        yield paths


def _made_private(folder: Path) -> bool:
    """Make a folder that only this user can open; return False if a suitable one exists."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        there = folder.stat()
        if not folder.is_dir() or any(folder.iterdir()):
            raise ParameterError(f"--tls-directory {folder}: name a new or an empty folder") from None
        # Other users could replace the files before they are read.
        if there.st_uid != os.geteuid() or there.st_mode & 0o077:
            raise ParameterError(
                f"--tls-directory {folder}: other users can open it; name a new folder, or chmod 700 it"
            ) from None
        return False
    return True


def why_refused(address: str, certificates: Certificates | None) -> str | None:
    """Return why a scheduler refused or did not answer, if TLS is the reason; else None.

    `certificates` is None for a connection without TLS, or with certificates that only Dask knows.
    """
    if not address.startswith("tls:" if certificates else "tcp:"):
        return None
    error = _greeted(address, _of_nobody() if certificates is None else certificates.context())
    alert = error.reason if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "") else None
    if certificates is None:
        answers = error is None or alert
        return "it speaks TLS; use tls:// with --tls-ca, --tls-cert and --tls-key" if answers else None
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"--tls-ca {certificates.ca} does not vouch for its certificate ({error.verify_message})"
    if alert:
        return f"it does not accept the certificate --tls-cert {certificates.cert} ({alert})"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return "it does not speak TLS"
    return None


def _of_nobody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only whether TLS is spoken is asked, so nothing is verified.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _greeted(address: str, context: ssl.SSLContext) -> OSError | None:
    """Do a TLS handshake and read one byte: a server may refuse the certificate after the handshake."""
    where = urlsplit(address)
    try:
        with (
            socket.create_connection((where.hostname, where.port), timeout=_ANSWER_SECONDS) as plain,
            context.wrap_socket(plain) as encrypted,
        ):
            encrypted.recv(1)
    except OSError as error:
        return error
    except ValueError as error:  # of the port
        return OSError(str(error))
    return None
