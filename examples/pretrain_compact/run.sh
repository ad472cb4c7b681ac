#!/usr/bin/env bash
# The recipe of elmo-compact-en, from the texts to the folder that ships and the card's perplexities:
#     examples/pretrain_compact/run.sh FOLDER OUT
# Stopped, it goes on when it is started again. Three runs, each from the weights of the one before, in each of which the
# step size is constant until it falls to zero over the last 5,000 or 8,000 updates; before that the end may be moved:
# STEPS=N. The last reads more of what is written as an encyclopedia is. (Of the recipe bilm-tf only the zero bias of the
# softmax is left: the options replace all else.)
set -euo pipefail
data=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}

# glibc keeps the memory of large tensors instead of giving it back after each: a step takes 0.75 to 0.9 of the time.
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000

train() { # FOLDER TEXT STEPS OPTIONS...: trains into a folder, goes on there, or finds it done
    local folder=$1 text=$2 steps=$3 resume=
    [ -f "$folder/model.safetensors" ] && return
    if compgen -G "$folder/checkpoint-*" >/dev/null; then resume=--resume; fi
    hf-elmo pretrain "$out/corpus/$text" "$folder" --held-out "$out/corpus/dev.txt" --words \
        --batch-size 256 --window 20 --steps "$steps" --bf16 --optim adamw_torch_fused --config hidden_dropout=0.0 \
        --set lr_scheduler_type=warmup_stable_decay --set loss_scale=1.0 --set max_grad_norm=1.0 \
        --set reset_state=true --set eval_strategy=steps --set eval_steps=2000 \
        --set save_steps=500 --set save_total_limit=3 --set logging_steps=50 --set disable_tqdm=true "${@:4}" $resume
}

[ -f "$out/corpus/dev.txt" ] ||
    python -m examples.pretrain_compact.prepare "$data" "$out/corpus" --vocab-size 40000

train "$out/run" train.txt 9500 --recipe bilm-tf --seed 1 --learning-rate 0.003 --set warmup_steps=300 --vocab "$out/corpus/vocab.txt" \
    --set 'lr_scheduler_kwargs={"num_decay_steps": 5000}' \
    --config hidden_size=512 --config cell_size=768 --config num_sampled=4096 --config num_highway_layers=2 \
    --config 'char_filters=[[1,32],[2,32],[3,64],[4,128],[5,256]]'
train "$out/run2" train.txt 11000 --seed 2 --learning-rate 0.002 --set warmup_steps=300 --init "$out/run" \
    --set 'lr_scheduler_kwargs={"num_decay_steps": 5000, "decay_type": "1-sqrt"}'
train "$out/run3" last.txt "${STEPS:-9600}" --seed 3 --learning-rate 0.002 --set warmup_steps=200 --init "$out/run2" \
    --set 'lr_scheduler_kwargs={"num_decay_steps": 8000}' --set load_best_model_at_end=False # dev.txt has other shares

python "$here/publish.py" "$out/run3" "$out/elmo-compact-en" --average "$out/run2" 0.3
for text in "$out/corpus/heldout.txt" "$out/corpus/heldout_modern.txt" "$data/lm/other/wikitext-2/test.txt" \
    "$out/corpus/wikitext.txt"; do
    hf-elmo perplexity "$text" --model "$out/elmo-compact-en" --words
done
