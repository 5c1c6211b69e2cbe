"""Small factorisations on one thread: on shared cores OpenBLAS's threads spin, and run a hundred times slower.

It is read when jax first loads LAPACK, so it must be set before any test runs.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
