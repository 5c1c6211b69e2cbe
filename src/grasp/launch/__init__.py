"""Where training processes run: this machine's cores, or a Ray cluster.

`base` defines a task and who trains it; `local` starts one process per core; `worker` is that process; `ray_launcher`
and the other `ray_*` files do the same on a cluster; `progress` shows how far they are. Open `base` first. Imports
training and everything below it.
"""
