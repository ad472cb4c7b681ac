#!/usr/bin/env bash
# The recipe of elmo-mini-en, from the public-domain texts to the folder that ships:
#     examples/pretrain_mini/run.sh ../shared/data/lm/public_domain OUT
# Stopped, it goes on when it is started again with RESUME=--resume.
set -euo pipefail
texts=$1 out=$2
here=$(dirname "$0")

# glibc keeps the memory of large tensors instead of giving it back after each: a step takes 0.75 to 0.9 of the time.
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000

[ -f "$out/corpus/vocab.txt" ] || python "$here/prepare.py" "$texts" "$out/corpus" --vocab-size 40000

hf-elmo pretrain "$out/run" "$out/corpus/train.txt" --held-out "$out/corpus/dev.txt" --vocab "$out/corpus/vocab.txt" --words \
    --batch-size 256 --window 20 --epochs 3 --bf16 --seed 1 \
    --optim adamw_torch_fused --learning-rate 0.003 \
    --config hidden_size=256 --config cell_size=640 --config num_sampled=4096 --config num_highway_layers=2 \
    --config 'char_filters=[[1,32],[2,32],[3,64],[4,128],[5,256]]' --config hidden_dropout=0.0 \
    --set lr_scheduler_type=cosine --set warmup_steps=200 --set loss_scale=1.0 --set max_grad_norm=1.0 \
    --set reset_state=true --set eval_strategy=steps --set eval_steps=1000 --set save_steps=200 --set logging_steps=20 ${RESUME:-}

python "$here/publish.py" "$out/run" "$out/elmo-mini-en"
hf-elmo perplexity "$out/elmo-mini-en" "$out/corpus/heldout.txt" --words
