# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# training: a model learns in one epoch on the CPU and on the simulated
# accelerator.  With --full, 15 epochs reach the documented accuracy, and both
# devices compute the same weights.
section_training() {
    use_build "$main"
    for device in cpu sim; do
        try "training on $device learns" reaches $device 1 0.75
    done
    [ $full = yes ] || return 0
    for device in cpu sim; do
        try "training on $device reaches 88.3 % in 15 epochs" \
            reaches $device 15 0.883
    done
    try "both devices compute the same weights" same_weights
}

reaches() { # device, epochs, accuracy
    "$main/core-train" --model mlp --device "$1" --epochs "$2" --seed 1 \
        --json >"$logs/$1-$2.json" || return
    tail -n 1 "$logs/$1-$2.json" |
        sed -n 's/.*"test_accuracy": *\([0-9.]*\).*/\1/p' |
        awk -v least="$3" '{ a = $1 > 1 ? $1 / 100 : $1; print a
            exit !(a >= least) } END { if (!NR) exit 1 }'
}

same_weights() {
    for device in cpu sim; do
        tail -n 1 "$logs/$device-15.json" |
            sed -n 's/.*"weights": *"\([0-9a-f]*\)".*/\1/p'
    done | awk '{ print; w[NR] = $1 }
        END { exit !(NR == 2 && w[1] == w[2]) }'
}
