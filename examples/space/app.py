"""The page of `hf-elmo explore` as a Space on the Hub.

    python examples/space/app.py

ELMO_MODEL, a variable of the Space, names a model on the Hub; by default it is the one that ships with hf_elmo.
"""

import os

from hf_elmo.explore import Explorer
from hf_elmo.explore.page import launch_settings, make_page

page = make_page(Explorer(os.environ.get("ELMO_MODEL")))

if __name__ == "__main__":
    page.launch(**launch_settings())
