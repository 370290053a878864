"""What is read back with trust comes from folders that nobody else can write to."""

import os
import stat

import pytest
from helpers import raised, refuses

from distls.storage.filesystem.private_folder import NotPrivateError, private_folder

OTHER = 12345


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_it_makes_is_closed_to_others(tmp_path):
    made = private_folder(tmp_path / "new" / "own")
    assert made == tmp_path / "new" / "own"
    assert _mode(made) == 0o700
    assert private_folder(made) == made


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, mode):
    (tmp_path / "own").mkdir()
    (tmp_path / "own").chmod(mode)
    said = raised(NotPrivateError, private_folder, tmp_path / "own")
    assert said == f"other users can write to {tmp_path}/own"


def test_a_folder_that_others_can_only_read_serves(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own").chmod(0o755)
    assert private_folder(tmp_path / "own") == tmp_path / "own"


def test_a_folder_that_anyone_can_replace_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    said = raised(NotPrivateError, private_folder, shared / "deep" / "own")
    assert said == f"other users can replace {shared}/deep/own: they can write to {shared}"
    shared.chmod(0o1777)
    assert private_folder(shared / "deep" / "own") == shared / "deep" / "own"


def test_a_link_is_followed_once(tmp_path):
    (tmp_path / "link").symlink_to(private_folder(tmp_path / "real"))
    assert private_folder(tmp_path / "link") == tmp_path / "real"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@needs_root
def test_a_folder_of_another_user_is_refused(tmp_path):
    (tmp_path / "own").mkdir(mode=0o700)
    os.chown(tmp_path / "own", OTHER, OTHER)
    said = raised(NotPrivateError, private_folder, tmp_path / "own")
    assert said == f"{tmp_path}/own belongs to another user"


@needs_root
def test_who_owns_a_sticky_folder_can_replace_what_is_in_it(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    os.chown(shared, OTHER, OTHER)
    refuses(NotPrivateError, "other users can replace", private_folder, shared / "own")
