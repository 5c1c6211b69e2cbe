"""Where training processes run: this machine, the processes of a Slurm or MPI job, or a Ray cluster.

Open `base` first: it defines a task, and the launcher that trains tasks. `local` starts one process per core, `worker`
is that process, `job` joins those of a Slurm or MPI job. `ray_launcher` starts workers on a cluster, `ray_group` one
run over several of its nodes, `ray_collectors` simulators on several. `progress` shows how far runs are. Imports
training and everything below it.
"""
