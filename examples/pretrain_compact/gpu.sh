#!/usr/bin/env bash
# Trains further on a machine with a GPU that is lent for minutes and that only small files get to and from:
#     gpu.sh pack CORPUS PACKAGE [INIT]    the code, the text of run.sh (OUT/corpus; each line once, with its number in
#         train.txt and last.txt) and a model with its softmax, by default the one that ships, in a folder of files of
#         at most 60 MB (MOST=BYTES)
#     gpu.sh train PACKAGE OUT SECONDS [OPTIONS...]      there, for so long; the options are those of gpu_train.py.
#         OUT gets the model, in float16, in pieces of 16 MB, and its log
#     gpu.sh unpack OUT MODEL              the pieces as a folder
# PYTHON names an interpreter that has hf_elmo's dependencies; nothing is installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
code=$here/../../hf_elmo

pack() { # CORPUS PACKAGE [INIT]
    local parts
    parts=$(mktemp -d)
    mkdir -p "$parts/hf_elmo/checkpoints" "$2"
    cp "$here/gpu_train.py" "$parts"
    tar -c -C "$code" --exclude 'elmo-*' --exclude cli . | tar -x -C "$parts/hf_elmo"
    cp -r "${3:-$code/checkpoints/elmo-compact-en}" "$parts/init"
    LC_ALL=C sort "$1/train.txt" "$1/last.txt" | uniq -c | sed 's/^ *//' | LC_ALL=C sort -s -n -k 1,1 >"$parts/counts.txt"
    tar -c -C "$parts" . | xz -9 -T 0 | split -b "${MOST:-60000000}" - "$2/package."
    rm -rf "$parts"
}

train() { # PACKAGE OUT SECONDS OPTIONS...
    local work
    work=$(mktemp -d)
    mkdir -p "$2"
    cat "$1"/package.* | tar -xJ -C "$work"
    PYTHONPATH=$work "${PYTHON:-python3}" "$work/gpu_train.py" "$work" "$work/out" "${@:3}" 2>&1 | tee "$2/log.txt"
    tar -c -C "$work/out" . | split -b 16000000 - "$2/piece."
    rm -rf "$work"
}

unpack() { # OUT MODEL
    mkdir -p "$2"
    cat "$1"/piece.* | tar -x -C "$2"
}

"$@"
