"""Environments by name: registered, misspelt, not installed, and the user's own."""

import importlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from env_contract import check
from paths import REPOSITORY

from grasp.envs import base, families, make, names
from grasp.envs.check import inspect
from grasp.types import Env, GraspError

DOCS = REPOSITORY / "docs" / "custom_environments.md"
PACKAGE_FREE = """
import io, sys
from grasp.envs import make, names
assert "smax/5m_vs_6m" in names()
assert "jaxmarl" not in sys.modules, "listing names imports the simulator"
sys.stderr = mine = io.StringIO()
make("mpe/simple")
assert sys.stderr is mine, "importing jaxmarl replaced stderr"
print("only this")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The module `own_tasks`, with the documentation's example in it."""
    in_python, in_jax = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    mistakes = "\nready = make()\nwrong = lambda: 3\n"
    (tmp_path / "own_tasks.py").write_text(in_jax + mistakes)
    (tmp_path / "meet_pz.py").write_text(in_python)
    (tmp_path / "own_broken.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("own_tasks", "meet_pz"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("own")
def test_an_environment_made_only_for_its_type_is_closed(monkeypatch):
    meet, closed = importlib.import_module("meet_pz"), []
    monkeypatch.setattr(meet.Meet, "close", lambda env: closed.append(env))
    make("meet_pz:make")
    assert len(closed) == 1


def test_names_are_family_and_task_and_unique():
    assert len(names()) == len(set(names()))
    assert {name.split("/")[0] for name in names()} == set(families())
    assert {"matrix/climbing", "mpe/simple_spread", "probe/value", "smax/8m_vs_9m"} <= set(names())


def test_listing_imports_no_simulator_and_making_prints_nothing():
    done = subprocess.run([sys.executable, "-c", PACKAGE_FREE], capture_output=True, text=True, timeout=120)
    assert done.stdout == "only this\n", done.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("smax/5m_v_6m", "unknown environment 'smax/5m_v_6m'; did you mean 'smax/5m_vs_6m'?"),
        ("simple_spread", "unknown environment 'simple_spread'; did you mean 'mpe/simple_spread'?"),
        (
            "chess",
            "unknown environment 'chess'; the families are grf, jumanji, matrix, mpe, pettingzoo, probe, smac, smacv2, "
            "skirmish, smax, or give your own as 'package.module:factory'",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, sentence):
    with pytest.raises(GraspError) as error:
        make(name)
    assert str(error.value) == sentence


def test_a_missing_package_is_answered_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    monkeypatch.setitem(sys.modules, "jaxmarl.environments.mpe", None)
    with pytest.raises(GraspError) as error:
        make("mpe/simple_spread")
    assert str(error.value) == (
        "environment 'mpe/simple_spread' needs the package jaxmarl; type: pip install 'grasp-marl[jaxmarl]'"
    )


@pytest.mark.usefixtures("own")
def test_own_environment_by_factory_or_as_a_value():
    assert isinstance(make("own_tasks:make"), Env)
    assert isinstance(make("own_tasks:ready"), Env)


@pytest.mark.usefixtures("own")
def test_the_documented_example_keeps_the_contract():
    check(make("own_tasks:make"))


@pytest.mark.usefixtures("own")
def test_the_documented_pettingzoo_example_keeps_the_contract():
    found = inspect(make("meet_pz:make?size=7,wins=true"))
    assert (found.spec.num_agents, found.spec.obs_dim, found.spec.num_actions) == (2, 2, 3)
    assert found.spec.horizon == 10
    assert found.spec.has_wins
    assert found.spec.name == "meet_pz:make?size=7,wins=true"
    assert found.seeds_differ


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("own_tasks:mak", "the module own_tasks has no 'mak'; did you mean 'own_tasks:make'?"),
        ("own_tasks:wrong", "is a int; it must be a PettingZoo parallel environment"),
        ("own_tusks:make", "there is no module 'own_tusks'"),
        ("own_tasks:make?horizon=3", "is a grasp.types.Env, which has its own spec; remove the option horizon"),
        ("meet_pz:make?sise=7", "cannot be made with {'sise': 7}"),
        (":make", "environment ':make' is not of the form 'package.module:factory'"),
        ("own_tasks:", "environment 'own_tasks:' is not of the form 'package.module:factory'"),
    ],
)
def test_own_environment_misspelt(name, sentence):
    with pytest.raises(GraspError, match=re.escape(sentence)):
        make(name)


@pytest.mark.usefixtures("own")
def test_a_package_missing_inside_the_users_module_is_not_hidden():
    with pytest.raises(ModuleNotFoundError, match="a_package_nobody_has"):
        make("own_broken:make")


# Options


def test_options_are_part_of_the_name_and_change_the_task():
    plain, weaker = make("skirmish/3m"), make("skirmish/3m?enemy=hold,start_jitter=0.5")
    assert plain.spec.name == "skirmish/3m"
    assert weaker.spec.name == "skirmish/3m?enemy=hold,start_jitter=0.5"
    assert base.options("skirmish/3m").keys() >= {"enemy", "profile", "start_jitter"}
    assert base.options("mpe/simple") == {}
    assert base.with_options("skirmish/3m", {}) == "skirmish/3m"
    assert base.with_options("skirmish/3m", {"start_jitter": "0.5", "enemy": "hold"}) == weaker.spec.name
    starts = [np.asarray(env.reset(jax.random.key(0))[0].battle.x) for env in (plain, weaker)]
    assert 0 < np.abs(starts[0] - starts[1]).max() <= 0.5


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("skirmish/3m?enemi=hold", "environment 'skirmish/3m' has no option 'enemi'; did you mean 'enemy'?"),
        ("skirmish/3m?enemy=brave", "enemy must be one of attack, focus, hold, not 'brave'"),
        ("skirmish/3m?start_jitter=far", "start_jitter must be a number, not 'far'"),
        ("skirmish/3m?start_jitter=nan", "start_jitter must be a number, not 'nan'"),
        ("skirmish/3m?cooldown_noise=1", "cooldown_noise must be true or false, not '1'"),
        ("probe/value?speed=2", "environment 'probe/value' has no option 'speed'; it has none"),
    ],
)
def test_a_wrong_option_is_answered_with_the_valid_ones(name, sentence):
    with pytest.raises(GraspError) as mistake:
        make(name)
    assert str(mistake.value) == sentence


def test_simulators_are_recognised_without_being_started(monkeypatch):
    """Configurations and results can be read where the simulator is not installed."""
    monkeypatch.setenv("GRASP_FOOTBALL_PYTHON", "/nowhere/python")
    assert base.simulated("grf/academy_3_vs_1_with_keeper?pinned=true")
    assert base.simulated("pettingzoo/nobody.has_this")
    assert not base.simulated("skirmish/3m?start_jitter=0.5")
    with pytest.raises(GraspError, match="unknown environment"):
        base.simulated("nowhere/3m")
