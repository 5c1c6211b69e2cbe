"""MA2E: QMIX whose agents reconstruct the other agents' inputs with a masked autoencoder.

`algorithm` is the learner and the file to open first; `autoencoder` is the network; `perception` gives the agents its
reconstruction while they act.
"""

from grasp.algos.ma2e.algorithm import make

__all__ = ["make"]
