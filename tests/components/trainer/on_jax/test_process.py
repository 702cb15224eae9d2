"""What the process of the Trainer reports of the one that trains on JAX. Covers `__main__`."""

import pytest

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]


def test_an_error_of_the_users_code_names_its_line(table, train, on_jax, tmp_path, monkeypatch):
    monkeypatch.delenv("WARM_JAX")  # a process that imports all itself, as a user's
    (tmp_path / "own.py").write_text("def callbacks(spec):\n    return 1 / 0\n")
    with pytest.raises(InfeedError, match="ZeroDivisionError") as raised:
        train(table[0], "class", "table", **on_jax | {"callbacks_fn": f"{tmp_path}/own.py:callbacks"})
    assert "own.py, line 2" in raised.value.where


def test_a_missing_package_names_the_extra(monkeypatch):
    from infeed.components.trainer.on_jax import process

    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InfeedError) as raised:
        process.train(None, None)
    assert "tfx-infeed[jax]" in raised.value.do
