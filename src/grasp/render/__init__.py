"""Pictures of episodes (`grasp play`, and the replays of `grasp watch`).

`film` plays episodes and writes a GIF or MP4; `draw` turns one moment into a picture. Open `film` first. Imports types
only.
"""
