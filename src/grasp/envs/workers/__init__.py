"""Files that run in worker processes, in whatever interpreter a simulator needs: they import numpy, nothing of ours."""
