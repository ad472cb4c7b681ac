#!/usr/bin/env bash
# The recipe of elmo-compact-en, from the texts to the folder that ships and the card's table:
#     examples/pretrain_compact/run.sh ../shared/data OUT
# Stopped, it goes on when it is started again. Two runs, the second from the weights of the first, in each of which the
# step size is constant until it falls to zero over the last 5,000 updates; before that the end may be moved: STEPS=N.
# (More is better: the loss of what ships was still falling.)
set -euo pipefail
data=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..:$here/..${PYTHONPATH:+:$PYTHONPATH}

# glibc keeps the memory of large tensors instead of giving it back after each: a step takes 0.75 to 0.9 of the time.
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000

train() { # FOLDER STEPS OPTIONS...: trains into a folder, goes on there, or finds it done
    local folder=$1 steps=$2 resume=
    [ -f "$folder/model.safetensors" ] && return
    if compgen -G "$folder/checkpoint-*" >/dev/null; then resume=--resume; fi
    hf-elmo pretrain "$folder" "$out/corpus/train.txt" --held-out "$out/corpus/dev.txt" --words \
        --batch-size 256 --window 20 --steps "$steps" --bf16 --optim adamw_torch_fused --config hidden_dropout=0.0 \
        --set lr_scheduler_type=warmup_stable_decay \
        --set warmup_steps=300 --set loss_scale=1.0 --set max_grad_norm=1.0 \
        --set reset_state=true --set eval_strategy=steps --set eval_steps=2000 \
        --set save_steps=500 --set save_total_limit=3 --set logging_steps=50 --set disable_tqdm=true "${@:3}" $resume
}

[ -f "$out/corpus/sources.md" ] || python -m examples.pretrain_compact.prepare "$data" "$out/corpus" --vocab-size 40000

train "$out/run" 9500 --seed 1 --learning-rate 0.003 --vocab "$out/corpus/vocab.txt" \
    --set 'lr_scheduler_kwargs={"num_decay_steps": 5000}' \
    --config hidden_size=512 --config cell_size=768 --config num_sampled=4096 --config num_highway_layers=2 \
    --config 'char_filters=[[1,32],[2,32],[3,64],[4,128],[5,256]]'
train "$out/run2" "${STEPS:-11000}" --seed 2 --learning-rate 0.002 --init "$out/run" \
    --set 'lr_scheduler_kwargs={"num_decay_steps": 5000, "decay_type": "1-sqrt"}'

words=$(wc -lw < "$out/corpus/train.txt" | awk '{print $1 + $2}') # a boundary for each line
python "$here/../pretrain_mini/publish.py" "$out/run2" "$out/elmo-compact-en" --before "$out/run" --words-per-pass "$words"
python -m examples.pretrain_compact.evaluate "$here/../../hf_elmo/checkpoints/elmo-mini-en" "$out/elmo-compact-en" \
    --corpus "$out/corpus" --data "$data"
