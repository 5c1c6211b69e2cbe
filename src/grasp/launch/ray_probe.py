"""What a node has installed: `python -m grasp.launch.ray_probe ENV…`, started by `grasp.launch.ray_node`, prints it as
one JSON object."""

import json
import sys


def versions() -> dict[str, str]:
    """What must be the same on all nodes: a run may be resumed on any of them, bit for bit."""
    import jax

    from grasp.version import __version__

    return {"grasp": __version__, "jax": jax.__version__}


def main() -> None:
    from grasp.envs import base as envs
    from grasp.types import GraspError

    problems = {}
    for env in sys.argv[1:]:
        try:
            envs.make(env)
        except GraspError as reason:
            problems[env] = str(reason)
    print(json.dumps({"versions": versions(), "problems": problems}))


if __name__ == "__main__":
    main()
