"""The live page: run directories, finished or growing, in a browser (`grasp watch`).

Open `server` first: it answers requests from what `monitor` knows. `discovery` finds runs, `tail` follows their files,
`sampling` thins curves, `views` shapes the answers, `replay_queue` renders films. The page itself is the HTML, CSS and
JavaScript here. Imports analysis, runs, consensus, config and types.
"""

from grasp.dashboard.server import Server, serve

__all__ = ["Server", "serve"]
