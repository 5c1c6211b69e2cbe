"""The live page: run directories, finished or growing, in a browser (`grasp watch`)."""

from grasp.dash.server import Server, serve

__all__ = ["Server", "serve"]
