"""The held-out perplexity of a trigram model (Kneser and Ney 1995) with nltk, to compare a biLM's with.

    python examples/own_language/trigram.py OUT

Reads OUT/train.txt, OUT/heldout.txt and OUT/vocab.txt; other words count as <UNK>, as they do for the biLM.
"""

import math
import sys
from pathlib import Path

from nltk.lm import KneserNeyInterpolated, Vocabulary
from nltk.lm.preprocessing import padded_everygrams
from nltk.util import ngrams

folder = Path(sys.argv[1])
known = Vocabulary((folder / "vocab.txt").read_text(encoding="utf-8").split(), unk_cutoff=1, unk_label="<UNK>")
train, heldout = (
    [list(known.lookup(line.split())) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
    for name in ("train.txt", "heldout.txt")
)
model = KneserNeyInterpolated(3, discount=0.75)
model.fit((padded_everygrams(3, words) for words in train), known)
trigrams = [gram for words in heldout for gram in ngrams(["<s>", "<s>", *words, "</s>"], 3)]
nats = -sum(math.log(model.score(word, context)) for *context, word in trigrams) / len(trigrams)
print(f"perplexity {math.exp(nats):.1f} ({len(trigrams):,} words)")
