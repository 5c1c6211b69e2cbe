"""Drawing: episodes as films (`grasp play`), and charts for HTML pages.

Open `film` first: it plays episodes and writes a GIF or MP4, and `draw` turns each state into a picture. The JavaScript
files are the charts of `grasp watch` and of the report of `grasp compare`: `chart.js` is their common part.
Imports types only.
"""
