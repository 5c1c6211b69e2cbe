"""The non-negative quadratic program min ½ xᵀHx − bᵀx, x ≥ 0, to which every exact operator reduces.

H is a positive semi-definite matrix with unit diagonal (the cosines of the gradients). The optimality conditions are a
linear complementarity problem: x ≥ 0, z = Hx − b ≥ 0, xᵀz = 0. Two methods solve it, each with one Cholesky
factorisation per step, of the rows and columns in the current support:

1. Block principal pivoting (Júdice and Pires 1994; Kim and Park 2011) from full support: exchange every index whose
   sign is wrong, until four steps in a row have not lowered their number. It usually takes three to five steps.
2. Wolfe's active-set method (1976), which for a cone is the method of Lawson and Hanson (1974), from one index. It runs
   where pivoting has not reached the optimality conditions, mostly for gradients in fewer dimensions than agents.

Both are `lax.while_loop`s with a bounded number of steps. Their results are checked against the conditions: pivoting's
here (`optimal`), the final one by the caller.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


class Program(NamedTuple):
    """One quadratic program."""

    H: Float[Array, "N N"]
    b: Float[Array, " N"]
    ridge: Float[Array, ""]
    """Added to the diagonal in the factorisation only: how far rounding may lower the smallest eigenvalue."""


class Pivoting(NamedTuple):
    """State of block principal pivoting."""

    x: Float[Array, " N"]
    support: Bool[Array, " N"]
    fewest: Int[Array, ""]
    patience: Int[Array, ""]
    iterations: Int[Array, ""]
    done: Bool[Array, ""]


class Active(NamedTuple):
    """State of Wolfe's method: x is feasible and zero outside the support."""

    x: Float[Array, " N"]
    support: Bool[Array, " N"]
    iterations: Int[Array, ""]
    done: Bool[Array, ""]


def rounding(H: Float[Array, "N N"]) -> Float[Array, ""]:
    """How far rounding may move an eigenvalue of an N×N Gram matrix with unit diagonal in this precision."""
    return jnp.asarray(4 * max(len(H), 64) ** 0.5 * jnp.finfo(H.dtype).eps, H.dtype)


def nonnegative(H: Float[Array, "N N"], b: Float[Array, " N"]) -> tuple[Float[Array, " N"], Int[Array, ""]]:
    """Solve min ½ xᵀHx − bᵀx over x ≥ 0; return x and the number of factorisations.

    Where the program is unbounded (H singular along b) x is finite but large: about b over the rounding error.
    """
    program = Program(H, b, rounding(H))
    x, iterations = _pivot(program)
    return _wolfe(program, x, iterations)


def solve_on(program: Program, support: Bool[Array, " N"]) -> Float[Array, " N"]:
    """Solve H x = b on the support, zero elsewhere.

    One step of iterative refinement removes the effect of the ridge where H is well conditioned. Where H is singular
    along b it would only add rounding errors, so it is kept only if it brings H x closer to b.
    """
    H, b, ridge = program
    both = support[:, None] & support[None, :]
    factor = lax.linalg.cholesky(jnp.where(both, H, 0) + jnp.diag(jnp.where(support, ridge, 1)), symmetrize_input=False)

    def back(rhs: Float[Array, " N"]) -> Float[Array, " N"]:
        half = lax.linalg.triangular_solve(factor, rhs[:, None], left_side=True, lower=True)
        return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)[:, 0]

    def error(x: Float[Array, " N"]) -> Float[Array, " N"]:
        return jnp.where(support, b - H @ x, 0)

    x = back(jnp.where(support, b, 0))
    refined = x + back(error(x))
    closer = jnp.sum(error(refined) ** 2) <= jnp.sum(error(x) ** 2)
    return jnp.where(closer, refined, x)


def optimal(program: Program, x: Float[Array, " N"]) -> Bool[Array, ""]:
    """Whether x meets the optimality conditions up to rounding, computed from H and b and not from a solver's state."""
    z = program.H @ x - program.b
    error = jnp.max(jnp.where(x > 0, jnp.abs(z), -z))
    return jnp.all(x >= 0) & (error <= program.ridge * (jnp.max(x) + jnp.max(jnp.abs(program.b))))


def _pivot(program: Program) -> tuple[Float[Array, " N"], Int[Array, ""]]:
    num = len(program.b)

    def step(s: Pivoting) -> Pivoting:
        x = solve_on(program, s.support)
        z = program.H @ x - program.b
        slack = program.ridge * jnp.max(jnp.abs(x))
        wrong = jnp.where(s.support, x < 0, z < -slack)
        count = jnp.sum(wrong)
        patience = jnp.where(count < s.fewest, 3, s.patience - 1)
        # Without progress the exchange cycles; Wolfe's method then terminates sooner than single exchanges (Murty's
        # rule) would. A failed factorisation gives NaN, hence no wrong sign, and an x that `optimal` rejects.
        done = (count == 0) | (patience < 0)
        return Pivoting(x, s.support ^ wrong, jnp.minimum(count, s.fewest), patience, s.iterations + 1, done)

    start = Pivoting(
        jnp.zeros_like(program.b),
        jnp.ones(num, bool),
        jnp.asarray(num + 1),
        jnp.asarray(3),
        jnp.asarray(0),
        jnp.asarray(False),
    )
    # Terminates: `fewest` can fall at most `num` times, and every other step uses up patience.
    end = lax.while_loop(lambda s: ~s.done, step, start)
    return end.x, end.iterations


def _wolfe(
    program: Program, candidate: Float[Array, " N"], spent: Int[Array, ""]
) -> tuple[Float[Array, " N"], Int[Array, ""]]:
    """Return the candidate if it is optimal, else run Wolfe's method from one index."""
    num = len(program.b)

    def step(s: Active) -> Active:
        x = solve_on(program, s.support)
        # If the ridge is too small for this support, the factorisation gives NaN: keep the last x and stop.
        failed = ~jnp.all(jnp.isfinite(x))
        outside = s.support & (x <= 0)
        blocked = jnp.any(outside)
        ratio = jnp.where(outside, s.x / jnp.where(outside, s.x - x, 1), 1)
        reached = s.x + jnp.min(ratio) * (x - s.x)
        shrunk = s.support & (reached > 0) & ~(outside & (ratio <= jnp.min(ratio)))
        z = jnp.where(s.support, jnp.inf, program.H @ x - program.b)
        grown = s.support | (jnp.arange(num) == jnp.argmin(z))
        finished = ~blocked & (jnp.min(z) >= -program.ridge * jnp.max(x))
        kept = jnp.where(blocked, jnp.where(shrunk, reached, 0), x)
        return Active(
            jnp.where(failed, s.x, kept),
            jnp.where(blocked, shrunk, jnp.where(finished, s.support, grown)),
            s.iterations + 1,
            finished | failed,
        )

    first = jnp.arange(num) == jnp.argmax(program.b)
    accepted = optimal(program, candidate)
    start = Active(jnp.where(accepted, candidate, 0), first, spent, accepted)
    end = lax.while_loop(lambda s: ~s.done & (s.iterations < spent + 4 * num + 20), step, start)
    return end.x, end.iterations
