#!/usr/bin/env bash
# Trains on a machine with a GPU that is lent for minutes and that only small files get to and from:
#     gpu.sh pack CORPUS PACKAGE [INIT]        the code, the corpus of run.sh (OUT/corpus) and a model to train further, as
#         one file of at most 60 MB (MOST=BYTES); of train.txt, which is shuffled, as many lines as there is room for
#     gpu.sh train PACKAGE OUT SECONDS [OPTIONS...]      there, for so long; the options are those of hf-elmo pretrain.
#         OUT gets the model in pieces of 16 MB, and its log
#     gpu.sh unpack OUT MODEL                  the pieces as a folder
# The moving average of the weights is kept (--ema), so a training may end at any step. PYTHON names an interpreter that
# has hf_elmo's dependencies; nothing is installed.
set -euo pipefail
python=$(command -v "${PYTHON:-python3}")

pack() { # CORPUS PACKAGE [INIT]
    local most=${MOST:-60000000} parts root left size lines
    root=$(cd "$(dirname "$0")/../.." && pwd) parts=$(mktemp -d)
    mkdir "$parts/corpus"
    cp "$1/vocab.txt" "$1/dev.txt" "$parts/corpus"
    cp -r "$root/hf_elmo" "$parts"
    mv "$parts/hf_elmo/cli" "$parts/hf_elmo_cli"
    rm -rf "$parts/hf_elmo/checkpoints"/elmo-*
    [ $# -lt 3 ] || copy_model "$3" "$parts/init"
    tar -czf "$2" -C "$parts" .
    left=$((most - $(stat -c %s "$2") - 100000))
    gzip -c "$1/train.txt" >"$parts/corpus/train.txt.gz"
    size=$(stat -c %s "$parts/corpus/train.txt.gz") lines=$(wc -l <"$1/train.txt")
    if [ "$size" -gt "$left" ]; then
        lines=$((lines * (left * 98 / 100) / size))
        head -n "$lines" "$1/train.txt" | gzip -c >"$parts/corpus/train.txt.gz"
    fi
    tar -czf "$2" -C "$parts" .
    rm -rf "$parts"
    echo "$2: $lines lines of train.txt, $(stat -c %s "$2") bytes"
}

copy_model() { # FROM TO: the files of a model without its checkpoints
    mkdir -p "$2"
    find "$1" -maxdepth 1 -type f ! -name 'trainer_state.json' -exec cp {} "$2" \;
}

train() { # PACKAGE OUT SECONDS OPTIONS...
    local package=$1 out=$2 seconds=$3 work
    work=$(mktemp -d) init=()
    mkdir -p "$out"
    tar -xzf "$package" -C "$work"
    [ ! -d "$work/init" ] || init=(--init "$work/init")
    # SIGINT ends a training after its step.
    PYTHONPATH=$work timeout --preserve-status --kill-after 60 --signal INT "$seconds" \
        "$python" -m hf_elmo pretrain "$work/corpus/train.txt.gz" "$work/out" --words --recipe new \
        --vocab "$work/corpus/vocab.txt" --ema 0.999 --steps 1000000000 --set lr_scheduler_type=constant_with_warmup \
        --set warmup_steps=300 --set save_strategy=no --set disable_tqdm=true "${init[@]}" "${@:4}" 2>&1 | tee "$out/log.txt"
    copy_model "$work/out" "$work/model"
    tar -cz -C "$work/model" . | split -b 16000000 - "$out/piece."
    rm -rf "$work"
}

unpack() { # OUT MODEL
    mkdir -p "$2"
    cat "$1"/piece.* | tar -xz -C "$2"
}

"$@"
