"""hf_elmo behind the calls of `protocol.py`."""

import ours_embedding
import ours_training
from protocol import serve

if __name__ == "__main__":
    serve({call.__name__: call for call in (*ours_embedding.CALLS, *ours_training.CALLS)})
