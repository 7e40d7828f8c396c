#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Compares the loss curves of core-train with those of PyTorch: 100 steps from
# the same weights on the same samples.  Needs a Python with torch: $PYTHON,
# python3, or that of Debian's python3-torch.
train=$LIBCORE_BUILD/core-train
compare=$LIBCORE_SOURCE/tests/compare-pytorch.py
python=
for candidate in "${PYTHON:-python3}" python3 /usr/bin/python3; do
    if "$candidate" -c 'import torch' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo '1..0 # SKIP no Python here has torch (Debian: python3-torch)'
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# ok NAME COMMAND…: prints the last line of the command's output.
ok() {
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$work/log" 2>&1; then
        echo "ok $number - $name"
        sed -n '$s/^/# /p' "$work/log"
    else
        echo "not ok $number - $name"
        print_reason "$work/log"
    fi
}

# curves MODEL DATA OPTION…
curves() {
    model=$1 data=$2
    shift 2
    "$python" "$compare" --core-train "$train" --model "$model" \
        --data "$data" --work "$work" --steps 100 -- "$@"
}

mkdir "$work/images"
echo 1..2
ok 'the loss curve of a transformer matches PyTorch' curves gpt \
    "$LIBCORE_SOURCE/core/ops/ops.yaml" --limit 40000 --batch 16 \
    --context 32 --warmup 20 --weight-decay 1 --clip 0.5
# Training is chaotic: one ulp of the first weights moves PyTorch's own curve by
# up to 2.8e-3 at a rate of 0.0005, and by 2.5e-4 at this rate.
ok 'the loss curve of a convolutional network matches PyTorch' curves cnn \
    "$work/images" \
    --warmup 20 --lr 0.0002
