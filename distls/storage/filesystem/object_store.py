"""Requests of object stores, and what their refusals mean; obstore is imported here only."""

import contextlib
import errno
import functools
import os
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from distls.storage.errors import ParameterError, StorageError, needing

RETRY_VARIABLE = "DISTLS_STORE_RETRY_SECONDS"

_RETRY_SECONDS = 60.0
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")

Result = TypeVar("Result")


def ask(root: str, key: str, request: Callable[[Any, str], Result]) -> Result:
    """Return ``request(client, key)`` for a client of the bucket `root`, retried after lost connections.

    Raises FileNotFoundError if there is no such object; StorageError if the bucket is missing, access is denied, or
    the store fails for longer than it may.
    """
    store, until, wait = client(root), time.monotonic() + _retry_seconds(), 0.1
    while True:
        try:
            return request(store, key)
        except refusals() as error:
            # A wait that would end after the deadline is not begun.
            if not _may_pass(error) or time.monotonic() + wait >= until:
                raise explained(root, key, error) from None
        time.sleep(wait)
        # Doubled up to a few seconds: many workers ask at once.
        wait = min(2 * wait, 5.0)


def obstore() -> Any:
    """Return the library, which is optional."""
    with needing("object stores need the package obstore: pip install 'distls[stores]'", StorageError):
        import obstore as library
    return library


@functools.lru_cache(maxsize=1)
def refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions that requests raise."""
    return (obstore().exceptions.BaseError, FileNotFoundError, ConnectionError)


def _retry_seconds() -> float:
    text = os.environ.get(RETRY_VARIABLE, "")
    try:
        return float(text or _RETRY_SECONDS)
    except ValueError:
        raise ParameterError(f"{RETRY_VARIABLE}={text}: expected a number of seconds") from None


def _check_endpoint() -> None:
    """Raise ParameterError for an endpoint that is no URL: the library would panic at its first request."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        value = os.environ.get(name, "")
        with contextlib.suppress(ValueError):
            parts = urlsplit(value)
            if not value or (parts.scheme in ("http", "https") and parts.hostname and parts.port != 0):
                continue
        raise ParameterError(f"{name}={value}: expected a URL such as https://HOST:PORT")


@functools.lru_cache(maxsize=64)
def client(root: str) -> Any:
    """Return this process's client of a bucket; credentials and endpoint are those of the environment."""
    _check_endpoint()
    from_url = obstore().store.from_url
    failures: tuple[type[Exception], ...] = (*refusals(), ValueError)
    # the time alone limits the retries
    retry = {"max_retries": 1000, "retry_timeout": timedelta(seconds=_retry_seconds())}
    options = {
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=30),
        "timeout": timedelta(hours=1),
        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes")
        or root.startswith("http://"),
    }
    try:
        return from_url(root, retry_config=retry, client_options=options)
    except failures as error:
        raise explained(root, "", error) from None


_DENIED = (
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "status 401",
    "status 403",
)
_REFUSED = ("PermissionDeniedError", "UnauthenticatedError")


def _may_pass(error: Exception) -> bool:
    """Return whether the same request may succeed later: the connection was lost, or the server failed."""
    text = str(error)
    if isinstance(error, FileNotFoundError) or "169.254." in text:
        return False
    status = _STATUS.search(text)
    return isinstance(error, ConnectionError) or (
        type(error).__name__ == "GenericError"
        and (status is None or status[1] >= "500")
        and "builder error" not in text
    )


def explained(root: str, key: str, error: Exception) -> OSError:
    """Return the error of a refused request: one line, and nothing of the server's answer that may be secret."""
    place, text = f"{root}/{key}" if key else root, str(error)
    code, status = _CODE.search(text), _STATUS.search(text)
    said = code[1] if code else f"status {status[1]}" if status else ""
    if isinstance(error, FileNotFoundError) and said != "NoSuchBucket":
        return FileNotFoundError(errno.ENOENT, "no such object", place)
    why = said or " ".join(text.split("\n")[0].split(" - ")[-1].split())
    known = [
        (said == "NoSuchBucket", f"there is no bucket {root}; make it first, or check AWS_ENDPOINT_URL"),
        ("169.254." in text, "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for the workers too"),
        (
            said in _DENIED or type(error).__name__ in _REFUSED,
            f"access denied ({why}); check the credentials in the environment, of the workers too",
        ),
        ("BadScheme" in text, "its endpoint is not https; set AWS_ALLOW_HTTP=true to allow that"),
    ]  # fmt: skip
    otherwise = f"the object store fails ({why}); once it works again, repeat the command, or run `distls resume`"
    return StorageError(f"{place}: {next((line for holds, line in known if holds), otherwise)}")
