#!/usr/bin/env bash
# From the reviews to a biLM in OUT/model, and its perplexity on the reviews of other movies:
#     examples/korean/run.sh FOLDER OUT
# STEPS=N: updates of 1,280 words. Stopped, it goes on when it is started again.
set -euo pipefail
data=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 # as examples/pretrain_compact/run.sh

[ -d "$out/start" ] || python -m examples.korean.prepare "$data" "$out"
[ -f "$out/vocab.txt" ] || hf-elmo vocab "$out/train.txt" "$out/vocab.txt" --words --size 40000
resume=
if compgen -G "$out/model/checkpoint-*" >/dev/null; then resume=--resume; fi
[ -f "$out/model/model.safetensors" ] ||
    hf-elmo pretrain "$out/train.txt" "$out/model" --init "$out/start" --recipe new --words --vocab "$out/vocab.txt" \
        --steps "${STEPS:-14000}" --bf16 --config hidden_dropout=0.0 --set save_total_limit=1 $resume
hf-elmo perplexity "$out/heldout.txt" --model "$out/model" --words
