"""The Python block of the README runs as it is pasted."""

import re
from pathlib import Path

import jax.numpy as jnp
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_block_runs(tmp_path, monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("grasp.training.compilation_cache.enable", lambda: None)
    found = {}
    exec(compile(block, "README.md", "exec"), found)
    assert int(found["info"].status) == 0, "certified"
    assert float(jnp.sum(found["info"].weights)) == pytest.approx(1.0, abs=1e-5)
    assert all(leaf.any() for leaf in found["params"].values()), "the optimiser has taken a step"
    assert found["actions"].shape == (found["team"].spec.num_agents,)
    assert (tmp_path / found["run"].path / "config.json").exists()


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)", README))
def test_every_link_leads_to_a_file(link):
    assert (Path(__file__).parents[1] / link).exists()
