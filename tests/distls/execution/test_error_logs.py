"""Messages of Dask: none of its loggers stays louder than asked for."""

import logging

import pytest

from distls.execution.dask.error_logs import set_log_level


@pytest.fixture
def levels():
    """Put the levels back."""
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [(each, each.level) for each in loggers]
    yield
    for each, level in before:
        each.setLevel(level)


@pytest.mark.usefixtures("levels")
def test_all_loggers_of_dask_are_as_quiet_as_asked():
    """Dask gives its client a level of its own: "Failed to reconnect" was a second line of a lost scheduler."""
    set_log_level(logging.CRITICAL)
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    assert "distributed.client" in names
    assert [name for name in names if logging.getLogger(name).isEnabledFor(logging.ERROR)] == []
    set_log_level(logging.WARNING)
    assert logging.getLogger("distributed.client").isEnabledFor(logging.WARNING)
