"""A little data set in a folder that stands for the shared one, and the hash of what a fit makes of them."""

import pytest
from deploy_helpers import sha256_of
from helpers import labelled_rows, printed, write_dataset


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """Sparse rows in a dozen partitions."""
    path = tmp_path_factory.mktemp("deploy") / "train"
    write_dataset(path, *labelled_rows(1_200, 300, 4))
    return path


@pytest.fixture(scope="session")
def serial(train):
    """Return the hash of the weights that the examples' fit has in one process."""
    run = train.parent / "serial"
    printed("fit", train, run, "--executor", "serial", "--quiet")
    return sha256_of(run)


@pytest.fixture
def shared(train, tmp_path):
    """Return a folder with the data set in it, for what an example shares."""
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "train").symlink_to(train)
    return folder
