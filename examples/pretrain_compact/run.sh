#!/usr/bin/env bash
# The recipe of elmo-compact-en, from the texts to the folder that ships and the card's table:
#     examples/pretrain_compact/run.sh ../shared/data OUT
# Stopped, it goes on when it is started again with RESUME=--resume. The step size is constant until it falls to zero
# over the last 5,000 of 9,500 updates; before that the end may be moved: STEPS=N RESUME=--resume. (More is better: the loss
# of what ships was still falling.)
set -euo pipefail
data=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
steps=${STEPS:-9500}
export PYTHONPATH=$here/../..:$here/..${PYTHONPATH:+:$PYTHONPATH}

# glibc keeps the memory of large tensors instead of giving it back after each: a step takes 0.75 to 0.9 of the time.
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000

[ -f "$out/corpus/sources.md" ] || python -m examples.pretrain_compact.prepare "$data" "$out/corpus" --vocab-size 40000

hf-elmo pretrain "$out/run" "$out/corpus/train.txt" --held-out "$out/corpus/dev.txt" --vocab "$out/corpus/vocab.txt" --words \
    --batch-size 256 --window 20 --steps "$steps" --bf16 --seed 1 \
    --optim adamw_torch_fused --learning-rate 0.003 \
    --config hidden_size=512 --config cell_size=768 --config num_sampled=4096 --config num_highway_layers=2 \
    --config 'char_filters=[[1,32],[2,32],[3,64],[4,128],[5,256]]' --config hidden_dropout=0.0 \
    --set lr_scheduler_type=warmup_stable_decay --set 'lr_scheduler_kwargs={"num_decay_steps": 5000}' \
    --set warmup_steps=300 --set loss_scale=1.0 --set max_grad_norm=1.0 \
    --set reset_state=true --set eval_strategy=steps --set eval_steps=2000 \
    --set save_steps=500 --set save_total_limit=3 --set logging_steps=50 --set disable_tqdm=true ${RESUME:-}

words=$(wc -lw < "$out/corpus/train.txt" | awk '{print $1 + $2}') # a boundary for each line
python "$here/../pretrain_mini/publish.py" "$out/run" "$out/elmo-compact-en" --words-per-pass "$words"
python -m examples.pretrain_compact.evaluate "$here/../../hf_elmo/checkpoints/elmo-mini-en" "$out/elmo-compact-en" \
    --corpus "$out/corpus" --data "$data"
