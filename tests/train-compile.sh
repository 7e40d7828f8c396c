#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-train --compile: every model ends with the weights of a run without it,
# all steps run programs, with fused kernels, and what cannot be compiled is
# refused at the start.
LIBCORE_COMPILE_CODEGEN=on
export LIBCORE_COMPILE_CODEGEN
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
data=$work/data

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
# shellcheck source=tests/support/train.sh
. "$LIBCORE_SOURCE/tests/support/train.sh"

mlp() {
    run --model mlp --data "$data" --batch 32 "$@"
}
# With dropout.
cnn() {
    run --model cnn --data "$data" --batch 32 --warmup 3 "$@"
}
gpt() {
    run --model gpt --text "$work/text" --context 16 --layers 2 --heads 2 \
        --width 32 --batch 16 --warmup 3 --sample 8 "$@"
}

# alike MODEL ARGUMENT…: with --compile every step runs a program, and the
# weights are those without it.
alike() {
    "$@" || return
    weights=$(of weights)
    "$@" "${compile---compile}" || return
    echo "$last"
    same "$weights" "$(of weights)" && same "$(of eager_steps)" 0 &&
        same "$(of compiled_steps)" "$(of steps)" &&
        [ "$(of recordings)" -le 4 ]
}

# The last batch of an epoch is smaller; the rate falls after each.
optimizers() {
    for options in '--optimizer adamw --weight-decay 0.1' '--optimizer sgd' \
        '--optimizer sgd --momentum 0 --clip 0.5'; do
        # shellcheck disable=SC2086 # splits into words
        alike mlp --epochs 2 $options || return
    done
}

goes_on() { # MODEL ARGUMENT…
    "$@" --epochs 4 || return
    straight=$(of weights)
    "$@" --epochs 4 --steps 3 --save "$work/half" --compile || return
    "$@" --epochs 4 --resume "$work/half" --compile || return
    same "$straight" "$(of weights)" && same "$(of eager_steps)" 0
}

on_sim() {
    LIBCORE_SIM_CHECK=1 LIBCORE_SIM_DELAY_US=20 alike "$@" --device sim
}

# All graphs but that of a step with a smaller batch are launched from the second
# step on.
as_graphs() {
    compile=--compile=reduce-overhead
    on_sim "$@" || return
    [ "$(of graph_launches)" -ge $(($(of steps) / 2)) ]
}

# Only what the device may choose is measured.
measured() (
    LIBCORE_COMPILE_CODEGEN=auto
    LIBCORE_CACHE=$work/cache
    export LIBCORE_CACHE
    alike cnn --steps 2 || return
    ls "$work"/cache/kernels/*.choice.kernel
)

# Each step is recorded again, and the programs are compared.
recorded_alike() { # MODEL
    "$1" --epochs 1 || return
    weights=$(of weights)
    LIBCORE_COMPILE_CHECK=1 "$1" --epochs 1 --compile || return
    echo "$last"
    same "$weights" "$(of weights)" && same "$(of eager_steps)" 0 &&
        [ "$(of recordings)" -ge "$(of steps)" ]
}

refuses() { # STATUS PATTERN ARGUMENT…
    status=$1 pattern=$2
    shift 2
    "$train" --data "$data" --compile "$@" >"$work/out" 2>"$work/err"
    got=$?
    cat "$work/err"
    [ $got = "$status" ] && grep -E -q -e "$pattern" "$work/err"
}
refused() {
    refuses 2 'does not support --amp fp16' --amp fp16 &&
        refuses 2 'does not support --amp fp8' --amp fp8 &&
        refuses 2 '--compile fast: accepts default' --compile=fast &&
        refuses 2 '--compile "": accepts default' --compile= &&
        refuses 2 'max-autotun: accepts default' --compile=max-autotun ||
        return
    mlp --steps 1 --amp fp16 --save "$work/scaled" || return
    refuses 1 'does not support --amp fp16' --resume "$work/scaled"
}

profiled() {
    mlp --epochs 4 --compile --profile "$work/profile" || return
    [ -s "$work/profile/table.txt" ] && same "$(of eager_steps)" 0
}

text_report() {
    "$train" --data "$data" --batch 32 --steps 4 --compile >"$work/out" ||
        return
    cat "$work/out"
    grep -E '^compile 4 steps ran a program, 0 were called as they are; 1 ' \
        "$work/out"
}

data_set idx_images "$data" 300 50
seq 1000 1400 >"$work/text"
ok "a perceptron trains to the same weights" alike mlp --epochs 2
ok "convolutions with dropout train to the same weights" alike cnn --epochs 1
ok "a transformer trains to the same weights" alike gpt --epochs 2
ok "every optimizer trains to the same weights" optimizers
ok "products in bf16 lead to the same weights" alike mlp --epochs 1 --amp bf16
ok "the simulated device trains to the same weights" on_sim mlp --epochs 1
ok "a transformer on the simulated device, too" on_sim gpt --steps 4
ok "device graphs train to the same weights" as_graphs mlp --epochs 2 \
    --optimizer sgd
ok "a transformer with Adam, too" as_graphs gpt --steps 6
compile=--compile
ok "a model that is split trains to the same weights" alike mlp --epochs 1 \
    --devices sim,cpu
compile=--compile=max-autotune
ok "what is measured leads to the same weights" measured
compile=--compile
ok "training is resumed bit for bit" goes_on gpt
ok "what cannot be compiled is refused at the start" refused
ok "compiled steps are profiled" profiled
ok "the result tells how many steps ran a program" text_report
if [ -n "${LIBCORE_TEST_LONG-}" ]; then
    ok "convolutions on the simulated device" on_sim cnn --epochs 4
    ok "long training leads to the same weights" alike gpt --epochs 10
    for model in mlp cnn gpt; do
        ok "$model is recorded alike in each step" recorded_alike $model
    done
    if "$LIBCORE_BUILD/core-info" 2>/dev/null | grep -q '^  opencl  *[0-9]'; then
        for model in mlp cnn gpt; do
            ok "opencl trains $model to the same weights" alike $model \
                --epochs 1 --device opencl
        done
    fi
fi
echo "1..$number"
