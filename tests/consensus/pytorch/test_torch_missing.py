"""Without PyTorch: no other module imports the bridge, and its import error names what to install."""

import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


def test_a_missing_torch_is_one_sentence_that_names_the_extra():
    code = """
import sys
sys.modules["torch"] = None
for name in ("torch", "torchjd"):
    try:
        __import__(f"grasp.consensus.{name}")
    except ImportError as error:
        print(error)
"""
    sentence = "grasp.consensus.torch needs PyTorch; type: pip install 'grasp-marl[torch]'"
    assert run(code).splitlines() == [sentence, sentence]


def test_a_missing_torchjd_is_one_sentence_that_names_the_extra():
    code = """
import sys, types
sys.modules["torchjd"] = None
class Tensor: ...
fake = types.ModuleType("torch")
fake.Tensor = Tensor
sys.modules["torch"] = fake
sys.modules["grasp.consensus.torch"] = types.SimpleNamespace(weights_of=None)
try:
    import grasp.consensus.torchjd
except ImportError as error:
    print(error)
"""
    assert run(code) == "grasp.consensus.torchjd needs TorchJD; type: pip install 'grasp-marl[torch]'"


def test_the_library_never_imports_torch_by_itself():
    code = "import sys, grasp.api, grasp.consensus; print([m for m in ('torch', 'torchjd') if m in sys.modules])"
    assert run(code) == "[]"
