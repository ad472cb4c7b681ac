"""simple_elmo behind the calls of `protocol.py`, in an environment that has simple_elmo 0.9.2 and TensorFlow."""

import tensorflow as tf
from protocol import seconds_of, serve
from simple_elmo import ElmoModel
from simple_elmo.elmo import weight_layers

STATE = {}


def load(folder: str, threads: int) -> None:
    """Read `options.json` and `model.hdf5` of a folder; build the graph once, in a session that all calls share."""
    model = ElmoModel()
    model.load(folder, max_batch_size=128)
    model.elmo_sentence_input = weight_layers("input", model.sentence_embeddings_op, use_layers="all")
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    session = tf.compat.v1.Session(config=config)
    session.run(tf.compat.v1.global_variables_initializer())
    STATE.update(model=model, session=session)


def _vectors(batch: list[str]) -> None:
    STATE["model"].batch_size = len(batch)
    texts = [sentence.split() for sentence in batch]
    STATE["model"].get_elmo_vectors(texts, warmup=False, layers="all", session=STATE["session"])


def embed(batches: list[list[str]]) -> float:
    """Text in, arrays of every layer out, a batch at a time."""
    return seconds_of(lambda: [_vectors(batch) for batch in batches])


def latency(sentence: str) -> float:
    """One sentence, text in, arrays out."""
    return seconds_of(lambda: _vectors([sentence]))


if __name__ == "__main__":
    serve(globals())
