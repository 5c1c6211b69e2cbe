"""The house rules that a reader relies on: imports run one way, the library stands alone, sizes stay small."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import grasp

ROOT = Path(grasp.__file__).parent
LAYERS = [
    {"version", "types", "hyper", "simulators", "suites"},
    {"presets", "rules", "devices"},
    {
        "consensus",
        "returns",
        "losses",
        "nets",
        "normalise",
        "envs",
        "config",
        "checkpoint",
        "claims",
        "journal",
        "cache",
        "draw",
        "stats",
        "labels",
    },
    {"actor", "critic", "mixer", "replay", "transformer", "permutation"},
    {"autoencoder"},
    {"perception"},
    {"algos", "rollout", "evaluation", "film", "runs", "segments"},
    {"condensing"},
    {"recovery", "records", "progress", "hosted"},
    {"shares"},
    {"programs", "inspection", "protocol", "status"},
    {"training"},
    {"launch", "comparison", "plots", "report", "tensorboard", "doctor"},
    {"verdict", "catalogue", "exports"},
    {"tables"},
    {"html", "dash"},
    {"api", "bench"},
    {"reproduction"},
    {"commands"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(ROOT.rglob("*.py"))


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
def test_imports_run_one_way(path):
    here = room(path)
    for other in imports(path) - {here}:
        assert RANK[other] < RANK[here], f"{path.name} imports grasp.{other}, which stands above it"


def test_the_consensus_knows_only_jax_and_optax():
    allowed = {
        "jax",
        "jaxtyping",
        "optax",
        "grasp",
        "typing",
        "collections",
        "enum",
        "importlib",
        "difflib",
        "functools",
    }
    bridge = {"torch", "torchjd", "numpy", "math"}  # only in the files named after it, which nothing else imports
    for path in (ROOT / "consensus").glob("*.py"):
        assert imports(path) <= {"consensus"}, path
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            known = allowed | bridge if path.name.startswith("torch") else allowed
            assert {name.split(".")[0] for name in names} <= known, path
        text = re.sub("off.policy", "", path.read_text().lower())  # the paper's name of a rule
        for word in ("reward", "policy", "environment", "rollout", "episode"):
            assert word not in text, f"{path.name} speaks of {word}"


def test_environments_import_only_the_nouns():
    for path in (ROOT / "envs").glob("*.py"):
        assert imports(path) <= {"envs", "types", "simulators"}, path


def test_importing_the_library_pulls_in_nothing_heavy_and_changes_no_setting():
    code = (
        "import sys, jax, grasp, grasp.consensus; "
        "assert not jax.config.jax_enable_x64; "
        "assert jax.config.jax_compilation_cache_dir is None; "
        "print([m for m in ('matplotlib', 'rich', 'jaxmarl', 'safetensors', 'flax', 'torch', 'PIL') if m in sys"
        ".modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_can_be_seen_at_once(path):
    text = path.read_text()
    assert text.count("\n") <= 300, path
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{path.name}:{node.name}"
