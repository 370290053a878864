"""How near the optimum a fit is that starts from the duals of another alpha."""

from helpers import labelled_rows, write_dataset

from distls.training.fitting import fit


def test_the_duals_of_a_larger_alpha_are_scaled(tmp_path):
    """Times alpha / alpha', as they are, the scores would be too large."""
    data = write_dataset(tmp_path / "d", *labelled_rows(400, 100, 4), partition_rows=150)
    fit("sdca", data, tmp_path / "larger", params={"alpha": 1e-2}, rtol=1e-4)

    def gap(**params):
        record = fit("sdca", data, params={"alpha": 3e-3, **params}, passes=1, eval_every=1).record
        return record["certificate"]["relative"]

    assert 10 * gap(init=str(tmp_path / "larger")) <= gap()
