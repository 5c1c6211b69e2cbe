"""JAX's persistent compilation cache, so that a second run starts in seconds."""

import os
from pathlib import Path

import jax


def enable() -> None:
    """Enable the cache unless the user has configured one. Only the command line calls this."""
    if jax.config.jax_compilation_cache_dir is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    jax.config.update("jax_compilation_cache_dir", str(Path(home) / "grasp" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
