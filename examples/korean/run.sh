#!/usr/bin/env bash
# From the reviews to a biLM in OUT/model, and its perplexity on the reviews of other movies:
#     examples/korean/run.sh ../shared/data OUT
# STEPS=N: updates of 2,560 words. Stopped, it goes on when it is started again.
set -euo pipefail
data=$1 out=$2 steps=${STEPS:-9000}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 # as examples/pretrain_compact/run.sh

[ -d "$out/start" ] || python -m examples.korean.prepare "$data" "$out"
[ -f "$out/vocab.txt" ] || hf-elmo vocab "$out/vocab.txt" "$out/train.txt" --words --size 40000
resume=
if compgen -G "$out/model/checkpoint-*" >/dev/null; then resume=--resume; fi
head -500 "$out/dev.txt" >"$out/watched.txt"
[ -f "$out/model/model.safetensors" ] ||
    hf-elmo pretrain "$out/model" "$out/train.txt" --init "$out/start" --held-out "$out/watched.txt" --words \
        --vocab "$out/vocab.txt" --batch-size 128 --window 20 --steps "$steps" --bf16 --optim adamw_torch_fused \
        --learning-rate 0.003 --config hidden_dropout=0.0 --set warmup_steps=100 --set load_best_model_at_end=False \
        --set eval_strategy=no --set save_strategy=steps --set save_steps=500 --set save_total_limit=1 \
        --set logging_steps=50 --set disable_tqdm=true $resume
hf-elmo perplexity "$out/heldout.txt" --model "$out/model" --words
