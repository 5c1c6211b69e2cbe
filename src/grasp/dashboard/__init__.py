"""The live page of `grasp watch`: curves, gradient conflict and replays of run directories, in a browser.

Open `server` first: it answers requests from what `monitor` knows about the runs. `discovery` finds run directories,
`tail` follows their metrics logs, `sampling` reads a part of long ones, `views` shapes the JSON, `replay_queue` renders
films. The page is the HTML, CSS and JavaScript here, starting at `page.js`; its charts are in grasp.render.
Imports analysis, runs, consensus, config, render and types.
"""

from grasp.dashboard.server import Server, serve

__all__ = ["Server", "serve"]
