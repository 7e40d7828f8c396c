#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-train --amp: mixed precision learns like f32, resumes bit for bit with
# the loss scale, and refuses wrong options and checkpoints.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
data=$work/data

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
# shellcheck source=tests/support/train.sh
. "$LIBCORE_SOURCE/tests/support/train.sh"

# Each model on small data.
mlp() {
    run --model mlp --data "$data" --batch 32 "$@"
}
cnn() {
    run --model cnn --data "$data" --batch 32 --warmup 5 --lr 0.003 "$@"
}
gpt() {
    run --model gpt --text "$work/text" --context 16 --layers 2 --heads 2 \
        --width 32 --batch 16 --warmup 5 --lr 0.01 --sample 8 "$@"
}

# weights MODEL ARGUMENT…: prints a hash of all bits of the parameters.
weights() {
    "$@" || return
    of weights
}

below() { # NUMBER BOUND
    echo "$1 below $2"
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a < b) }'
}

# ------------------------------------------------------------------ learning

# Learns as far as f32, with other bits, since the precision differs.
learns() {
    for amp in bf16 fp16 fp8; do
        case $1 in
        gpt) epochs=4 bound=2.3 half=validation_loss ;;
        cnn) epochs=6 bound=1 half=train_loss ;;
        *) epochs=6 bound=0.5 half=train_loss ;;
        esac
        plain=$(weights "$1" --epochs $epochs) || return
        "$1" --epochs $epochs --amp $amp || return
        echo "$last"
        same "$(of amp)" $amp || return
        below "$(of $half)" $bound || return
        ! same "$plain" "$(of weights)" || return
    done
}

# On simulated devices, which work asynchronously and report unordered accesses.
elsewhere() {
    for amp in bf16 fp16 fp8; do
        one=$(weights "$1" --device cpu --amp $amp --steps 4) || return
        for devices in sim:0 sim:0,sim:1 cpu,sim:0; do
            same "$one" "$(LIBCORE_SIM_CHECK=1 weights "$1" --devices $devices \
                --amp $amp --steps 4)" || return
        done
    done
}

threads() {
    for amp in bf16 fp8; do
        one=$(weights "$1" --amp $amp --steps 4 --threads 1) || return
        same "$one" "$(weights "$1" --amp $amp --steps 4 --threads 3)" || return
    done
}

off_is_f32() {
    one=$(weights mlp --steps 3) || return
    mlp --steps 3 --amp off || return
    same "$one" "$(of weights)" && same "$(of amp)" off
}

says_so() {
    "$train" --data "$data" --epochs 1 --amp fp16 >"$work/out" || return
    grep '^amp *fp16, losses scaled$' "$work/out" || return
    "$train" --data "$data" --epochs 1 --amp fp8 >"$work/out" || return
    grep '^amp *fp8 in linear layers, delayed scaling$' "$work/out"
}

# --------------------------------------------------------------- checkpoints

goes_on() {
    for amp in bf16 fp16 fp8; do
        "$1" --amp $amp --epochs 3 --steps 14 || return
        straight="$(of weights) $(of amp) $(of loss_scale)"
        "$1" --amp $amp --epochs 3 --steps 6 --save "$work/half" || return
        # The checkpoint records its precision.
        "$1" --epochs 3 --steps 14 --resume "$work/half" || return
        same "$straight" "$(of weights) $(of amp) $(of loss_scale)" || return
    done
}

# edit FROM TO: replaces text of the checkpoint by text of the same length.
edit() {
    [ ${#1} = ${#2} ] && grep -aqF "$1" "$work/half" || return
    LC_ALL=C sed "s/$1/$2/" "$work/half" >"$work/edited"
}

# With a scale that is too large, steps are skipped and the scale decreases.
scale_is_kept() {
    mlp --amp fp16 --steps 4 --save "$work/half" || return
    same "$(of loss_scale) $(of skipped_steps)" '65536 0' || return
    edit '"scaler.scale":"65536"' '"scaler.scale":"16384"' || return
    mlp --steps 5 --resume "$work/edited" || return
    same "$(of loss_scale) $(of skipped_steps)" '16384 0' || return
    edit '"scaler.scale":"65536"' '"scaler.scale":"8e+30"' || return
    mlp --steps 4 --resume "$work/edited" || return
    before=$(of weights)
    mlp --steps 7 --resume "$work/edited" || return
    same "$(of loss_scale) $(of skipped_steps)" '1e+30 3' || return
    same "$before" "$(of weights)" || return
    edit '"scaler.growth_interval":"2000"' '"scaler.growth_interval":"0005"' ||
        return
    mlp --steps 6 --resume "$work/edited" || return
    same "$(of loss_scale) $(of skipped_steps)" '131072 0'
}

# refuses STATUS PATTERN ARGUMENT…
refuses() {
    status=$1 pattern=$2
    shift 2
    "$train" --data "$data" --batch 32 --epochs 1 "$@" >"$work/out" \
        2>"$work/err"
    got=$?
    cat "$work/err"
    [ $got = "$status" ] && grep -E -q -e "$pattern" "$work/err"
}

bad_input() {
    refuses 2 '--amp fp4: accepts bf16, fp16, fp8 and off' --amp fp4 || return
    refuses 2 '--amp "": accepts' --amp '' || return
    refuses 2 '--amp needs a value' --amp || return
    refuses 1 'diverged in epoch 1: a tensor to be quantized is infinite' \
        --amp fp8 --lr 1e30 || return
    mlp --amp fp16 --steps 4 --save "$work/half" || return
    refuses 1 'amp fp16 and cannot be resumed with bf16' --amp bf16 \
        --resume "$work/half" || return
    refuses 1 'amp fp16 and cannot be resumed with off' --amp off \
        --resume "$work/half" || return
    edit '"amp":"fp16"' '"amp":"fp17"' || return
    refuses 1 'unknown precision "fp17"' --resume "$work/edited" || return
    for scale in 00000 1e999 -6553 nan00 none0; do
        edit '"scaler.scale":"65536"' "\"scaler.scale\":\"$scale\"" || return
        refuses 1 'edited is damaged: ' --resume "$work/edited" || return
    done
    edit '"scaler.growth_interval"' '"scaler.growth_distance"' || return
    refuses 1 'edited is damaged: .*scaler.growth_interval' \
        --resume "$work/edited"
}

# poke NAME INDEX BYTES: overwrites bytes of a checkpoint tensor from its 4-byte
# element INDEX on; BYTES is a printf format.
poke() {
    header=$(od -An -tu4 -N4 "$work/half" | tr -d ' ')
    begin=$(head -c $((8 + header)) "$work/half" | tail -c +9 |
        LC_ALL=C sed -n "s/.*\"$1\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/p")
    [ -n "$begin" ] || return
    cp "$work/half" "$work/edited"
    # shellcheck disable=SC2059
    printf "$3" | dd of="$work/edited" bs=1 conv=notrunc \
        seek=$((8 + header + begin + 4 * $2)) 2>/dev/null
}

# The quantizers of the four layers: counts are i64, scales and amaxes are f32.
quantizers_are_kept() {
    mlp --amp fp8 --steps 4 --save "$work/half" || return
    straight=$(weights mlp --amp fp8 --steps 6) || return
    same "$straight" "$(weights mlp --steps 6 --resume "$work/half")" || return
    # A scale of 2 gives other weights, and training continues from it.
    poke quantizers.scales 0 '\000\000\000\100' || return
    ! same "$straight" "$(weights mlp --steps 6 --resume "$work/edited")" ||
        return
    poke quantizers.scales 2 '\000\000\300\377' || return
    refuses 1 'edited is damaged: quantizer: the scale' \
        --resume "$work/edited" || return
    poke quantizers.scales 1 '\000\000\300\377' || return
    refuses 1 'edited is damaged: quantizer: the amax' \
        --resume "$work/edited" || return
    poke quantizers.history 1 '\000\000\200\177' || return
    refuses 1 'edited is damaged: quantizer: amax 1 of the history is inf' \
        --resume "$work/edited" || return
    poke quantizers.counts 0 '\001\020' || return
    refuses 1 'edited is damaged: a quantizer keeps 4097 amaxes' \
        --resume "$work/edited" || return
    edit '"quantizers.scales"' '"quantizers.sca1es"' || return
    refuses 1 'quantizers.scales' --resume "$work/edited" || return
    edit '12,3]' '3,12]' || return
    refuses 1 '"quantizers.counts" must have 12 times 3 elements of dtype i64' \
        --resume "$work/edited"
}

# ------------------------------------------------------------------ accuracy

# Accuracy on the test set of Fashion-MNIST within half a point of f32.
within_half_a_point() {
    run --model cnn --epochs 8 --seed 1 || return
    plain=$(of test_accuracy)
    for amp in bf16 fp16; do
        run --model cnn --epochs 8 --seed 1 --amp $amp || return
        echo "$amp $(of test_accuracy), f32 $plain"
        awk -v a="$(of test_accuracy)" -v b="$plain" \
            'BEGIN { exit !(a > b - 0.005) }' || return
    done
}

# The MLP with default options stays within one point of f32.
within_a_point() {
    run --model mlp --seed 1 || return
    plain=$(of test_accuracy)
    run --model mlp --seed 1 --amp fp8 || return
    echo "fp8 $(of test_accuracy), f32 $plain"
    awk -v a="$(of test_accuracy)" -v b="$plain" 'BEGIN { exit !(a > b - 0.01) }'
}

data_set idx_bands "$data" 300 100
seq 1000 2000 >"$work/text"
if [ -n "${LIBCORE_TEST_LONG-}" ]; then
    echo 1..19
else
    echo 1..17
fi
for model in mlp cnn gpt; do
    ok "$model learns in bf16, fp16 and fp8" learns $model
    ok "$model gives the same bits on every device" elsewhere $model
    ok "$model gives the same bits with any number of threads" threads $model
    ok "$model resumes bit for bit" goes_on $model
done
ok '--amp off equals f32' off_is_f32
ok 'the report names the precision' says_so
ok 'the loss scale is saved, grows and shrinks' scale_is_kept
ok 'wrong options and checkpoints are refused' bad_input
ok 'the state of the quantizers is saved' quantizers_are_kept
if [ -n "${LIBCORE_TEST_LONG-}" ]; then
    ok 'a convolutional network is as accurate as in f32' within_half_a_point
    ok 'an MLP in fp8 is as accurate as in f32' within_a_point
fi
