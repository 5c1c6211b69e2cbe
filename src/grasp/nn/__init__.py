"""Networks as pure functions over plain trees of arrays; the agent axis is never merged away.

`layers` has dense layers, `gru` the recurrent layer, `transformer` attention; `actor`, `critic` and `mixer` are built
from them. `sharding` spreads arrays over devices. Open `actor` first. Imports `types` only.
"""
