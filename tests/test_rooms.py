"""What a reader of the code relies on: rooms, imports that run one way, and a library that stands alone."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

import grasp
from grasp.consensus import diagnose
from grasp.types import Kind, Metric

ROOT = Path(grasp.__file__).parent
LAYERS = [
    {"types", "version"},
    {"consensus", "config", "envs", "nn"},
    {"algos", "render"},
    {"runs"},
    {"training"},
    {"launch", "analysis"},
    {"api"},
    {"reproduction", "bench", "dashboard"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(ROOT.rglob("*.py"))


def test_there_are_at_most_nine_layers():
    assert len(LAYERS) <= 9


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The rooms a file imports, at its top or inside functions, type checking apart."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "grasp":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("grasp.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", [p for p in FILES if room(p) != "__init__"], ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way_over_the_layers_of_rooms(path):
    here = room(path)
    for other in imports(path) - {here}:
        assert RANK[other] < RANK[here], f"{path.name} imports grasp.{other}, which stands above it"


def test_no_test_file_imports_another():
    """What tests share lives in conftest.py or in a named module of tests/support."""
    here = Path(__file__).parent
    for path in here.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            shared = [name for name in names if name.rpartition(".")[2].startswith(("test_", "conftest"))]
            assert not shared, f"{path.relative_to(here)} imports {shared}"


def test_the_consensus_knows_only_jax_and_optax():
    allowed = {"grasp", "jax", "jaxtyping", "optax"} | sys.stdlib_module_names
    bridge = {"numpy", "torch", "torchjd"}  # only in the files named after it, which nothing else imports
    for path in (ROOT / "consensus").glob("*.py"):
        assert imports(path) <= {"consensus"}, path
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            known = allowed | bridge if path.name.lstrip("_").startswith("torch") else allowed
            assert {name.split(".")[0] for name in names} <= known, path
        text = re.sub("off.?policy", "", path.read_text().lower())  # the paper's name of a rule
        for word in ("reward", "policy", "environment", "rollout", "episode"):
            assert word not in text, f"{path.name} speaks of {word}"


def test_environments_import_only_the_nouns():
    for path in (ROOT / "envs").rglob("*.py"):
        assert imports(path) <= {"envs", "types"}, path


NOT_METRICS = {
    ("hyperparameters.py", "iteration"): "a choice of --refresh",
    ("presets.py", "iteration"): "a choice of --refresh",
    ("validation.py", "iteration"): "a choice of --refresh",
    ("ablations.py", "iteration"): "a choice of --refresh",
    ("parser.py", "absolute"): "a choice of --score",
    ("run_data.py", "absolute"): "a choice of --score",
    ("comparability.py", "absolute"): "a choice of --score",
    ("parser.py", "episodes"): "an option",
    ("custom.py", "wins"): "an option",
    ("listing.py", "wins"): "a column",
    ("summary.py", "wins"): "a column",
    ("export.py", "win_rate"): "marl-eval's name",
    ("smac.py", "weights"): "SMACv2's name",
}
"""Where the text of a metric's name or a record's kind means something else."""


def test_metrics_and_kinds_of_records_are_named_in_one_place():
    names = {value for owner in (Kind, Metric) for name, value in vars(owner).items() if not name.startswith("_")}
    found = set()
    for path in FILES:
        if room(path) not in ("types", "consensus"):
            constants = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
            found |= {(path.name, value) for value in constants if isinstance(value, str) and value in names}
    assert found == set(NOT_METRICS), "use grasp.types.Kind and grasp.types.Metric"


def metrics() -> set[str]:
    return {value for name, value in vars(Metric).items() if not name.startswith("_")}


def test_the_consensus_writes_the_metrics_under_their_names():
    written = set(diagnose(jnp.eye(3), jnp.full(3, 1 / 3), jnp.ones(())))
    assert written - metrics() == {"cosine"}, "a matrix, of which the pairs are logged"


def test_the_scripts_of_the_page_read_metrics_under_their_names():
    text = {path.name: path.read_text() for path in (ROOT / "dashboard").glob("*.js")}
    hints = re.search(r"^const HINTS = \{(.*?)^\};", text["conflict.js"], re.MULTILINE | re.DOTALL)
    panels = re.search(r"^const PANELS = \[(.*?)^\];", text["conflict.js"], re.MULTILINE | re.DOTALL)
    assert hints
    assert panels
    described = set(re.findall(r"^  (\w+):", hints[1], re.MULTILINE))
    drawn = set(re.findall(r'name: "(\w+)"', panels[1]))
    assert drawn | {Metric.COSINES} == described
    scores = r'\.metrics\.(\w+)|\brun\.(\w+_\w+) !== null|"([a-z]+_[a-z]+)"'
    read = {name for found in re.findall(scores, text["curves.js"] + text["run_list.js"]) for name in found if name}
    assert {Metric.RETURN_MEAN, Metric.WIN_RATE} <= read
    assert (described | read) - metrics() == set()


def test_importing_the_library_pulls_in_nothing_heavy_and_changes_no_setting():
    code = (
        "import sys, jax, grasp, grasp.consensus; "
        "assert not jax.config.jax_enable_x64; "
        "assert jax.config.jax_compilation_cache_dir is None; "
        "print([m for m in ('matplotlib', 'rich', 'jaxmarl', 'safetensors', 'flax', 'torch', 'PIL') if m in sys"
        ".modules])"
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, env=plain
    )
    assert done.stdout.strip() == "[]"


def test_the_root_has_only_the_nouns_and_the_public_functions():
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "api.py", "types.py", "version.py"}
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"} | {
        "api",
        "types",
        "version",
    } == set(RANK)


WITHIN = [str(path.parent.relative_to(ROOT)) for path in sorted(ROOT.glob("*/*/__init__.py"))]
"""Rooms within rooms."""


@pytest.mark.parametrize("name", sorted(set(RANK) - {"api", "types", "version"}) + WITHIN)
def test_every_room_says_what_it_holds_what_it_imports_and_where_to_begin(name):
    said = ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text())) or ""
    assert 3 <= len(said.splitlines()) <= 9, "a room's docstring has some five lines"
    assert re.search(r"[Oo]pen\s+`\w+`\s+first", said), "which file to open first"
    allowed = re.search(r"Imports\s([^.]*)\.", said)
    assert allowed, "what the room may import"
    if not re.search("every|below", allowed[1]):
        found = set().union(*(imports(path) for path in (ROOT / name).rglob("*.py"))) - {
            name.partition("/")[0],
            "version",
        }
        assert found <= set(re.findall(r"\w+", allowed[1])), "it imports more than it says"


def test_the_concepts_page_lists_the_rooms_in_the_order_of_their_layers():
    page = (ROOT.parents[1] / "docs" / "concepts.md").read_text()
    rooms = re.findall(r"^\| `(\w+)/?` \|", page.split("## Nouns")[0], re.MULTILINE)
    assert sorted(rooms) == sorted(RANK)
    assert [RANK[name] for name in rooms] == sorted(RANK[name] for name in rooms)


def test_files_named_on_the_concepts_page_exist():
    page = (ROOT.parents[1] / "docs" / "concepts.md").read_text()
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", page)) - {"tests/test_rooms.py"}
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
