"""`grasp doctor`: what is missing on this machine, and the command that fixes it."""

import json
import sys
from pathlib import Path

from paths import STANDINS

from grasp import cli
from grasp.cli import doctor


def test_what_is_missing_is_named_with_the_command_that_fixes_it(monkeypatch, capsys):
    monkeypatch.delenv("SC2PATH", raising=False)
    monkeypatch.setenv("GRASP_SMAC_PYTHON", sys.executable)
    monkeypatch.setenv("GRASP_SMACV2_PYTHON", sys.executable)
    monkeypatch.setenv("GRASP_FOOTBALL_PYTHON", "/no/python")
    assert cli.main(["doctor", "--json"]) == 0
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["training"]["fine"]
    assert found["grf/"] == {"what": "grf/", "fine": False, "words": "make football"}
    assert "export SC2PATH" in found["smac/ and smacv2/: SC2PATH"]["words"]
    assert cli.main(["doctor"]) == 0
    assert "no  grf/: make football" in capsys.readouterr().out


def test_an_installed_game_is_found(starcraft, monkeypatch):
    monkeypatch.setenv("GRASP_SMAC_PYTHON", sys.executable)
    monkeypatch.setenv("GRASP_SMACV2_PYTHON", sys.executable)
    rows = doctor.starcraft()
    assert len(rows) == 7
    assert all(row.fine for row in rows), [row for row in rows if not row.fine]


def test_another_interpreter_does_not_import_this_ones_packages(monkeypatch, tmp_path):
    other = tmp_path / "python"
    other.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("SC2PATH", str(STANDINS / "StarCraftII"))
    monkeypatch.setenv("PYTHONPATH", str(STANDINS))
    monkeypatch.setenv("GRASP_SMAC_PYTHON", str(other))
    monkeypatch.setenv("GRASP_SMACV2_PYTHON", str(other))
    wrong = {row.what: row.words for row in doctor.starcraft() if not row.fine}
    assert {"smac/ and smacv2/: package smac", "smac/ and smacv2/: package smacv2"} <= wrong.keys()
    assert "venv-smac" not in "".join(wrong.values()), "the other interpreter has no JAX to protect"
