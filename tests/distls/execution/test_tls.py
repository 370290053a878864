"""The TLS options: what cannot be used is refused by name, in one line, before anything is connected to."""

import contextlib
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from distributed.security import Security
from helpers import distls, raised

from distls.cli import cli
from distls.execution import ClusterOptions
from distls.execution.dask.tls import Certificates, certificates_of, private_files, why_refused
from distls.storage.errors import ParameterError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files with a good certificate and key, and with all that they are confused with."""
    folder = tmp_path_factory.mktemp("tls")
    made, other = Security.temporary(), Security.temporary()
    locked = load_pem_private_key(made.tls_client_key.encode(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    contents = {
        "ca": made.tls_ca_file,
        "cert": made.tls_client_cert,
        "key": made.tls_client_key,
        "other key": other.tls_client_key,
        "locked key": locked.decode(),
        "text": "no PEM at all\n",
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
    return {name: folder / name for name in [*contents, "nowhere"]} | {"folder": folder}


@pytest.mark.fast_cases("changed0", "changed3", "changed7", "changed10")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": None}, "TLS needs --tls-ca, --tls-cert and --tls-key together; --tls-key is missing"),
        (
            {"ca": None, "key": None},
            "TLS needs --tls-ca, --tls-cert and --tls-key together; --tls-ca and --tls-key are missing",
        ),
        ({"ca": "nowhere"}, "--tls-ca {nowhere}: no such file or directory"),
        ({"cert": "nowhere"}, "--tls-cert {nowhere}: no such file or directory"),
        ({"key": "nowhere"}, "--tls-key {nowhere}: no such file or directory"),
        ({"key": "folder"}, "--tls-key {folder}: is a directory"),
        ({"ca": "text"}, "--tls-ca {text}: no certificate in PEM form is in it"),
        ({"cert": "key"}, "--tls-cert {key}: no certificate in PEM form is in it"),
        ({"key": "cert"}, "--tls-key {cert}: no key in PEM form is in it"),
        ({"key": "other key"}, "--tls-key {other key}: not the key of --tls-cert {cert}"),
        (
            {"key": "locked key"},
            "--tls-key {locked key}: it is protected by a passphrase; write one without, readable by you only",
        ),
    ],
)
def test_what_cannot_be_used_is_named(files, changed, message):
    named = {"ca": "ca", "cert": "cert", "key": "key"} | changed
    said = raised(ParameterError, certificates_of, *(None if name is None else files[name] for name in named.values()))
    assert said == message.format(**files)


def test_paths_are_made_absolute(files, monkeypatch):
    monkeypatch.chdir(files["folder"])
    made = certificates_of(Path("ca"), Path("cert"), Path("key"))
    assert made == Certificates(files["ca"], files["cert"], files["key"])


def test_no_option_is_no_certificate():
    assert certificates_of(None, None, None) is None


def test_certificates_that_nothing_would_use_are_refused(files):
    with pytest.raises(ParameterError, match="go with --scheduler; a cluster of this command's own"):
        ClusterOptions(certificates=Certificates(files["ca"], files["cert"], files["key"]))


@pytest.mark.fast_cases("options0", "options3", "options5", "options8")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--host", "0.0.0.0"],
            "--host 0.0.0.0: who reaches it could run programs as this user; add --tls or certificates, or "
            "--allow-anyone on a network that is nobody else's",
        ),
        (
            ["--host", ""],
            "--host : who reaches it could run programs as this user; add --tls or certificates, or "
            "--allow-anyone on a network that is nobody else's",
        ),
        (["--allow-anyone"], "--allow-anyone: nobody else reaches 127.0.0.1; drop it"),
        (
            ["--host", "0.0.0.0", "--tls", "--allow-anyone"],
            "--allow-anyone: TLS lets holders of a certificate in only; drop one of the two",
        ),
        (["--tls-directory", "new"], "--tls-directory needs --tls"),
        (["--tls", "--tls-directory", "{ca.parent}"], "--tls-directory {ca.parent}: name a new or an empty folder"),
        (["--tls", "--tls-directory", "{ca}"], "--tls-directory {ca}: name a new or an empty folder"),
        (
            ["--tls", "--tls-directory", "{open}"],
            "--tls-directory {open}: other users can open it; name a new folder, or chmod 700 it",
        ),
        (
            ["--tls", "--tls-ca", "{ca}", "--tls-cert", "{cert}", "--tls-key", "{key}"],
            "--tls makes a certificate; drop it, or drop --tls-ca, --tls-cert and --tls-key",
        ),
    ],
)
def test_clusters_that_are_refused(files, tmp_path, options, message):
    tmp_path.chmod(0o755)
    known = files | {"open": tmp_path}
    result = distls("cluster", *(option.format(**known) for option in options))
    assert result == (2, "", f"distls: {message.format(**known)}\n")


def test_a_folder_of_before_serves_and_stays(tmp_path):
    tmp_path.chmod(0o700)
    with private_files(tmp_path, {"key.pem": "secret"}) as paths:
        assert paths == {"key.pem": tmp_path / "key.pem"}
        assert paths["key.pem"].read_text() == "secret"
        assert stat.S_IMODE(paths["key.pem"].stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def plain():
    """Yield where somebody greets in plain text whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        connection.sendall(b"not TLS at all")
                        connection.recv(2**16)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_who_does_not_speak_tls_is_told_apart_from_who_is_not_there(files, plain):
    made = Certificates(files["ca"], files["cert"], files["key"])
    assert why_refused(f"tls://{plain}", made) == "it does not speak TLS"
    assert why_refused(f"tcp://{plain}", None) is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for nobody in (f"127.0.0.1:{port}", "127.0.0.1:99999", "nowhere.invalid:8786"):
        assert why_refused(f"tls://{nobody}", made) is None
        assert why_refused(f"tcp://{nobody}", None) is None


def test_without_what_makes_certificates_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    result = distls("cluster", "--tls")
    assert result[:2] == (2, "")
    assert result.err == (
        "distls: --tls needs the package cryptography to make a certificate: pip install 'distls[tls]', or give "
        "--tls-ca, --tls-cert and --tls-key\n"
    )


def test_every_command_that_takes_a_scheduler_takes_certificates():
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in cli.commands.items()
    }
    users = {name for name, own in options.items() if "--scheduler" in own}
    assert {"fit", "resume", "plan", "evaluate", "predict", "ingest", "generate", "columns"} <= users
    assert users == {name for name, own in options.items() if {"--tls-ca", "--tls-cert", "--tls-key"} <= own} - {
        "cluster"
    }


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "ws://127.0.0.1:9"])
def test_an_address_without_encryption_is_refused_with_certificates(files, tmp_path, address):
    tls = [part for name in ("ca", "cert", "key") for part in (f"--tls-{name}", str(files[name]))]
    result = distls("generate", "rcv1-4", tmp_path / "data", "--scheduler", address, *tls)
    assert result[:2] == (2, "")
    assert result.err == (
        f"distls: --scheduler {address}: not encrypted, and --tls-ca, --tls-cert and --tls-key ask for encryption; "
        "use an address of tls://\n"
    )


def test_encryption_without_certificates_names_the_options(tmp_path):
    result = distls("generate", "rcv1-4", tmp_path / "data", "--scheduler", "tls://127.0.0.1:9")
    assert result[:2] == (2, "")
    assert result.err == (
        "distls: --scheduler tls://127.0.0.1:9: TLS needs certificates: give --tls-ca, --tls-cert and --tls-key, "
        "or name them in Dask's configuration\n"
    )
