"""Programs of worker processes, run by the interpreter that a simulator needs (Python 3.8 or newer).

Open `serve` first: the worker's main program, which loads one of the adapters `football`, `pettingzoo` and `smac`.
Imports numpy and the simulators' packages, nothing of grasp.
"""
