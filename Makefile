# Two commands on a fresh machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A second supported interpreter, if this machine has one, for the fast tests.
OTHER := $(shell for p in python3.12 $(HOME)/.pyenv/versions/3.12.*/bin/python; do $$p -c '' 2>/dev/null && echo $$p && break; done)

.PHONY: setup demo pictures results test test-all test-other test-torch test-cluster football test-football browser test-browser mutants lint types bench-smoke clean

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; type: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

# GRASP-MAPPO against MAPPO on MPE simple_spread, four seeds each: a few minutes on two cores.
DEMO := mpe/simple_spread --steps 500000 --seeds 4 --lr 1e-3 --critic_lr 1e-3
demo: setup
	rm -rf demo
	$(BIN)/grasp train mappo $(DEMO) --out demo/mappo
	$(BIN)/grasp train grasp-mappo $(DEMO) --out demo/grasp-mappo
	$(BIN)/grasp compare demo/grasp-mappo demo/mappo --out demo
	$(BIN)/grasp play demo/grasp-mappo --overlay --out demo/episode.gif
	@echo "the report: demo/report.html, an episode: demo/episode.gif; look closer with: $(BIN)/grasp watch demo"

# The README's pictures, of the demo's runs.
pictures: setup browser
	$(BIN)/python scripts/pictures.py demo

# The evidence in results/: days on two cores, to be interrupted at will. Its runs without their networks, and the page.
RUNS := runs/results
results: setup
	for task in $$(ls results/*/words.md | cut -d/ -f2); do \
	  $(BIN)/grasp reproduce results-$$task --budget results --out $(RUNS)/$$task || exit; \
	  for run in $(RUNS)/$$task/*/*/config.json; do \
	    run=$$(dirname $$run) && kept=results/$$task/runs/$$(basename $$run) && rm -rf $$kept && $(BIN)/grasp condense $$run --out $$kept || exit; \
	  done \
	done
	$(BIN)/python scripts/results.py

# What to run on every change: minutes.
test: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --durations 10 -m 'not full'

# Everything: every probe, map and kill, the other interpreter, and what needs an environment of its own.
test-all: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --durations 20
	$(MAKE) test-other test-torch test-cluster test-football test-browser

# The PyTorch bridge, and the algorithms against learners in PyTorch, in an environment of its own: torch 2.13.0 is a build
# without CUDA, and nothing else here needs it.
test-torch: .venv-torch/ready
	.venv-torch/bin/python -m pytest tests/consensus/pytorch tests/algos/pytorch

.venv-torch/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,torch]' torch==2.13.0
	touch $@

# Training on a Ray cluster of several nodes on this machine, some of which are killed; in an environment of its own.
# Four nodes on two cores now and then miss a heartbeat, and Ray then takes them for dead: what failed has a second try.
test-cluster: .venv-ray/ready
	.venv-ray/bin/python -m pytest tests/launch/cluster || .venv-ray/bin/python -m pytest tests/launch/cluster --last-failed

.venv-ray/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,ray]'
	touch $@

# Debian's packages that are missing: installed by root, printed for other users.
define need_packages
missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q ' installed$$' || printf '%s ' $$p; done); \
install="apt-get install -y --no-install-recommends $$missing"; \
if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ]; then apt-get update && $$install; \
elif [ -n "$$missing" ]; then echo "as root, type: $$install"; exit 2; fi
endef

# Google Research Football, compiled in an environment of its own: about ten minutes, once (pip keeps the wheel).
FOOTBALL_NEEDS := build-essential cmake libsdl2-dev libsdl2-image-dev libsdl2-ttf-dev libsdl2-gfx-dev libegl1-mesa-dev \
  libgl1-mesa-dev libboost-python-dev libboost-thread-dev libboost-filesystem-dev libboost-system-dev
football: .venv-football/ready

.venv-football/ready:
	@$(call need_packages,$(FOOTBALL_NEEDS))
	@echo "compiling the engine: about ten minutes, once"
	$(PYTHON) -m venv .venv-football
	. .venv-football/bin/activate && pip install --quiet --disable-pip-version-check 'setuptools<66' wheel psutil six gym==0.25.2 && \
	  pip install --quiet --disable-pip-version-check --no-build-isolation gfootball==2.10.2
	.venv-football/bin/python -c 'import gfootball_engine'
	touch $@

# Against the real engine; fails where it is missing.
test-football: setup football
	GRASP_FOOTBALL_PYTHON=$(CURDIR)/.venv-football/bin/python $(BIN)/python -m pytest tests/envs/football

# The live page and the report in Debian's chromium, alone on the machine: one test has three seconds for two hundred runs.
BROWSER_NEEDS := chromium chromium-driver fonts-dejavu-core
browser:
	@$(call need_packages,$(BROWSER_NEEDS))

test-browser: setup browser
	GRASP_BROWSER=1 $(BIN)/python -m pytest tests/dashboard/test_browser.py tests/analysis/test_html_report.py

# On the other interpreter, with the jax it resolves, what would notice a difference: the library, every environment's
# contract, networks, rollouts, checkpoints, and the commands, which train. Nothing to do where there is none.
OTHER_TESTS := tests/consensus tests/envs/test_contract.py tests/nn tests/training/test_rollout.py tests/runs/test_checkpoint.py tests/cli/test_commands.py
test-other:
ifneq ($(OTHER),)
	$(MAKE) setup VENV=.venv-3.12 PYTHON=$(OTHER)
	.venv-3.12/bin/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m 'not full' $(OTHER_TESTS)
endif

# Whether the tests notice mistakes: each row of scripts/mutants_table.py in a copy. `SAMPLE=10` takes ten rows.
SAMPLE :=
mutants: setup
	$(BIN)/python scripts/mutants.py $(if $(SAMPLE),--sample $(SAMPLE))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

bench-smoke: setup
	$(BIN)/grasp bench --smoke

clean:
	rm -rf .venv .venv-3.12 .venv-torch .venv-ray .venv-football build dist *.egg-info src/*.egg-info
