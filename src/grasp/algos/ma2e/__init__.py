"""MA2E: QMIX whose agents reconstruct the other agents' inputs with a masked autoencoder.

Open `algorithm` first: the learner. `autoencoder` is the network; `perception` gives the agents its reconstruction
while they act. Imports QMIX and what it uses, config, nn and types.
"""

from grasp.algos.ma2e.algorithm import make

__all__ = ["make"]
