"""Every operator for TorchJD: `Consensus` aggregates Jacobians (autojac), `ConsensusWeighting` Gramians (autogram).

    backward(losses); jac_to_grad(model.parameters(), Consensus("min_norm"))
    losses.backward(ConsensusWeighting("min_norm")(engine.compute_gramian(losses)))

Weights are those of `grasp.consensus` for the Gramian divided by its largest diagonal entry. Where min-norm finds 0 in
the hull the weights are 0: the sum of gradients that cancel would be rounding noise.
"""

import numpy as np

from grasp.consensus.min_norm import Status
from grasp.consensus.operators import weighting
from grasp.consensus.torch import weights_of

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import Tensor  # pyright: ignore[reportMissingImports]
    from torchjd.aggregation import GramianWeightedAggregator, Weighting  # pyright: ignore[reportMissingImports]
    from torchjd.linalg import PSDMatrix  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise ImportError("grasp.consensus.torchjd needs TorchJD; type: pip install 'grasp-marl[torch]'") from missing


class ConsensusWeighting(Weighting[PSDMatrix]):
    """The weights [N] of a named operator for a Gramian [N, N]. Not differentiable.

    Random operators use `seed` in the first call, seed + 1 in the second, and so on.
    """

    def __init__(self, operator: str = "min_norm", seed: int = 0) -> None:
        super().__init__()
        weighting(operator)  # an unknown name fails here, not in training
        self.operator, self.seed = operator, seed

    @torch.no_grad()
    def forward(self, gramian: Tensor, /) -> Tensor:
        """Weights in the Gramian's dtype and on its device; 0 where it is not finite."""
        G = gramian.detach().to("cpu", torch.promote_types(gramian.dtype, torch.float32)).numpy()
        largest = np.diagonal(G).max()
        w, _, status = weights_of(G / (largest if largest > 0 else 1), self.operator, self.seed)
        self.seed += 1
        if status == Status.STATIONARY or not np.isfinite(G).all():
            w = np.zeros_like(w)
        return torch.as_tensor(w, dtype=gramian.dtype, device=gramian.device)


class Consensus(GramianWeightedAggregator):
    """u = Σ w_i g_i over the rows of a Jacobian [N, D], with an operator's weights."""

    def __init__(self, operator: str = "min_norm", seed: int = 0) -> None:
        super().__init__(ConsensusWeighting(operator, seed))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.gramian_weighting.operator!r})"
