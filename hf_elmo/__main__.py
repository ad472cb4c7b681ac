"""`python -m hf_elmo`: the command `hf-elmo`."""

import sys

from hf_elmo_cli import main

sys.exit(main())
