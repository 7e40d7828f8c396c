#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-train --distributed with each MPI that is installed: the ranks keep equal
# weights, and their losses are those of one process with the whole batch, but
# for rounding.
work=$(mktemp -d "${TMPDIR:-/tmp}/libcore-train-XXXXXX")
trap 'rm -rf "$work"' EXIT
data=$work/data
number=0
# What an MPI library leaves of a job that is ended is removed, too.
export TMPDIR="$work" OMPI_MCA_btl_vader_backing_directory="$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$LIBCORE_BUILD/plugins/mpi/.libs
LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$LIBCORE_BUILD/plugins/opencl/.libs
export LIBCORE_PLUGIN_PATH

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
# shellcheck source=tests/support/train.sh
. "$LIBCORE_SOURCE/tests/support/train.sh"

# Losses are sums of f32 in another order: with eps = 2^-24, sums of up to 64
# terms differ by about 64 * eps = 4e-6 of the largest term, and a few steps of
# training make that larger.
bound=1e-4

# Ends what hangs; a busy machine may make every message wait for its turn.
limited() { timeout -k 5 300 "$@" </dev/null; }

launch() { # RANKS ARGUMENT...: trains in so many processes
    count=$1
    shift
    set -- "$train" --json --threads 1 "$@"
    case $mpi in
    openmpi)
        limited mpirun.openmpi --oversubscribe -n "$count" "$@" \
            --distributed mpi
        ;;
    mpich) limited mpirun.mpich -n "$count" "$@" --distributed mpi ;;
    esac >"$work/out" 2>"$work/err" || {
        cat "$work/out" "$work/err"
        return 1
    }
}

present() { # MPI
    [ -e "$LIBCORE_BUILD/plugins/mpi/.libs/core_$1.so" ] &&
        command -v "mpirun.$1" >/dev/null
}

losses() { # FILE: of the steps
    sed -n 's/.*"step": .*"loss": \([^,}]*\).*/\1/p' "$1"
}

# near A B: two files with as many numbers, which are equal within the bound.
near() {
    paste "$1" "$2" | awk -v bound="$bound" '
        NF != 2 { print "different numbers of steps"; bad = 1; exit }
        { d = $1 - $2; if (d < 0) d = -d
          if (d > most * $1) most = d / $1
          if (!(d <= bound * $1)) bad = 1 }
        END { print NR " losses, largest difference " most
              exit bad || NR == 0 }'
}

# The arguments of a model.  The last batch has 3 images.  With SGD, a gradient
# that is a sum and no average has another loss.
arguments() { # MODEL
    case $1 in
    mlp) echo "--model mlp --data $data --batch 32 --epochs 1 --optimizer sgd" ;;
    adam) echo "--model mlp --data $data --batch 32 --epochs 1 --clip 1" ;;
    cnn)
        echo "--model cnn --data $data --batch 32 --epochs 1 --limit 35" \
            "--dropout 0 --warmup 0"
        ;;
    gpt)
        echo "--model gpt --text $work/text --context 16 --layers 1 --heads 2" \
            "--width 16 --batch 8 --dropout 0 --sample 0 --steps 4 --warmup 0" \
            "--optimizer sgd --lr 0.1"
        ;;
    *-bf16) echo "$(arguments "${1%-bf16}") --amp bf16" ;;
    gpt-adamw)
        echo "$(arguments gpt) --heads 4 --layers 2 --optimizer adamw --lr 0.01"
        ;;
    esac
}

# The losses of one process with the whole batch.
reference() { # MODEL
    [ -e "$work/$1" ] && return 0
    # shellcheck disable=SC2046 # several words
    run --threads 1 --log 1 $(arguments "$1") && losses "$work/out" >"$work/$1"
}

trains() { # MODEL RANKS DEVICE [ARGUMENT]
    reference "$1" || return
    # shellcheck disable=SC2046
    launch "$2" --device "$3" --log 1 --verify $(arguments "$1") ${4:+"$4"} ||
        return
    losses "$work/out" >"$work/found"
    grep "\"ranks\": $2" "$work/out" && near "$work/$1" "$work/found"
}

# Half of the steps with two ranks, and the rest with three.
resumes() { # MODEL [ARGUMENT]
    reference "$1" || return
    rm -f "$work"/checkpoint*
    # shellcheck disable=SC2046
    launch 2 --log 1 --verify $(arguments "$1") --steps 2 ${2:+"$2"} \
        --save "$work/checkpoint" || return
    losses "$work/out" >"$work/found"
    launch 3 --log 1 --verify --data "$data" --epochs 1 \
        --resume "$work/checkpoint" --save "$work/checkpoint" ||
        return
    losses "$work/out" >>"$work/found"
    near "$work/$1" "$work/found"
}

# In bf16 each rank rounds its part of a gradient to 8 bits, by up to 2^-9 = 2e-3 of
# it, and Adam's first steps depend on its sign alone.
trains_bf16() {
    bound=1e-2
    trains mlp-bf16 4 cpu && trains cnn-bf16 3 cpu && trains gpt-bf16 2 cpu
    status=$? bound=1e-4
    return $status
}

# trains_parts MODEL RANKS DEVICE: each two ranks have one model.
trains_parts() { trains "$@" --tensor-parallel=2; }

# Two ranks with parts of the model, one process, and two ranks with parts again.
resumes_parts() { # MODEL
    reference "$1" || return
    # shellcheck disable=SC2046
    launch 2 --log 1 --verify $(arguments "$1") --steps 2 --tensor-parallel 2 \
        --save "$work/whole" || return
    losses "$work/out" >"$work/found"
    run --threads 1 --log 1 --text "$work/text" --sample 0 --steps 3 \
        --resume "$work/whole" --save "$work/whole" || return
    losses "$work/out" >>"$work/found"
    launch 2 --log 1 --verify --text "$work/text" --sample 9 --steps 4 \
        --tensor-parallel 2 --resume "$work/whole" || return
    losses "$work/out" >>"$work/found"
    grep '"sample": ".........' "$work/out" && near "$work/$1" "$work/found"
}

# Every number of ranks gathers the same weights and has the losses of one process.
trains_pieces() { # MODEL
    for count in 2 3 4; do
        trains "$1" $count cpu --shard=parameters || return
    done
    # Before the first step they are those of one process, in every bit.
    # shellcheck disable=SC2046
    run --threads 1 $(arguments "$1") --steps 0 || return
    sed -n 's/.*"weights": \("[^"]*"\).*/\1/p' "$work/out" >"$work/weights"
    # shellcheck disable=SC2046
    launch 3 $(arguments "$1") --shard=parameters --steps 0 &&
        grep "\"weights\": $(cat "$work/weights")" "$work/out"
}

# An engine that gathers parts in another order on all ranks.
finds_moved_pieces() {
    mkdir -p "$work/plugins" &&
        ln -sf "$LIBCORE_BUILD/tests/fixtures/.libs/core_sockets.so" \
            "$work/plugins" || return
    # shellcheck disable=SC2046
    (
        MASTER_ADDR=127.0.0.1 MASTER_PORT=$("${PYTHON:-python3}" -c '
import socket
probe = socket.socket()
probe.bind(("127.0.0.1", 0))
print(probe.getsockname()[1])') || exit
        LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$work/plugins
        SOCKETS_MUTANT=reorders
        export MASTER_ADDR MASTER_PORT LIBCORE_PLUGIN_PATH SOCKETS_MUTANT
        limited mpirun.mpich -n 2 "$train" --distributed sockets --threads 1 \
            --verify $(arguments gpt) --shard=parameters
    ) >"$work/out" 2>&1 && return 1
    grep 'weights characters or places that rank 0 has differ from those that it' \
        "$work/out"
}

# Two ranks with pieces of the parameters, three, and one process without pieces.
resumes_pieces() { # MODEL
    reference "$1" || return
    # shellcheck disable=SC2046
    launch 2 --log 1 $(arguments "$1") --steps 1 --shard=parameters --verify \
        --device sim --save "$work/pieces" || return
    losses "$work/out" >"$work/found"
    launch 3 --log 1 --verify --text "$work/text" --sample 9 --steps 3 \
        --shard=parameters --resume "$work/pieces" --save "$work/pieces" ||
        return
    losses "$work/out" >>"$work/found"
    grep '"sample": ".........' "$work/out" || return
    run --threads 1 --log 1 --text "$work/text" --sample 0 --steps 4 \
        --resume "$work/pieces" || return
    losses "$work/out" >>"$work/found"
    near "$work/$1" "$work/found"
}

# A block is computed again in backward with the same elements dropped; ranks
# with parts of one block drop out the same elements of its sums.
drops_out() {
    # shellcheck disable=SC2046
    run --threads 1 --log 1 $(arguments gpt) --dropout 0.2 &&
        losses "$work/out" >"$work/dropped" || return
    # shellcheck disable=SC2046
    launch 1 --log 1 $(arguments gpt) --dropout 0.2 --shard=parameters ||
        return
    losses "$work/out" >"$work/found"
    near "$work/dropped" "$work/found" || return
    # shellcheck disable=SC2046
    launch 2 --verify $(arguments gpt) --dropout 0.2 --tensor-parallel 2
}

# Ranks that read different files would train a mixture.
refuses_a_mixture() {
    # shellcheck disable=SC2046
    run --threads 1 $(arguments gpt) --steps 2 --save "$work/two" &&
        run --threads 1 $(arguments gpt) --lr 0.2 --steps 2 \
            --save "$work/other" || return
    for how in "--shard=parameters" "--tensor-parallel=2"; do
        set -- --distributed mpi --threads 1 --text "$work/text" "$how"
        limited mpirun.mpich -n 1 "$train" "$@" --resume "$work/two" : \
            -n 1 "$train" "$@" --resume "$work/other" >"$work/out" 2>&1 &&
            return 1
        grep 'the --resume file of rank 1 differ from those of rank 0' \
            "$work/out" || return
    done
}

# A number of a checkpoint is damaged: the message names its tensor.
names_the_tensor() {
    # shellcheck disable=SC2046
    run --threads 1 $(arguments gpt) --steps 1 --save "$work/damaged" &&
        spoil "$work/damaged" model.block1.narrow.weight || return
    launch 1 --text "$work/text" --resume "$work/damaged" \
        --shard=parameters && return 1
    grep 'tensor "model.block1.narrow.weight" has an infinite or NaN' \
        "$work/err"
}

# spoil FILE TENSOR: its first element becomes infinite.
spoil() {
    size=$(od -An -t u4 -N 4 "$1" | tr -d ' ')
    at=$(head -c $((size + 8)) "$1" | tail -c "$size" |
        sed -n "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/p")
    [ -n "$at" ] && printf '\000\000\200\177' |
        dd of="$1" bs=1 seek=$((8 + size + at)) conv=notrunc 2>/dev/null
}

refuses_three_ranks() {
    # shellcheck disable=SC2046
    launch 3 $(arguments gpt) --tensor-parallel 2 && return 1
    grep -q 'parallel 2 requires a multiple of 2 ranks; there are 3' "$work/err"
}

# Each rank has a file, and those of the first checkpoint are gone.
resumes_shards() {
    resumes adam --shard || return
    (cd "$work" && echo checkpoint*) >"$work/files"
    cat "$work/files"
    run=$(sed 's/^checkpoint checkpoint\.4-\([0-9a-f]*\)\.0 .*/\1/' "$work/files")
    [ "$(cat "$work/files")" = \
        "checkpoint checkpoint.4-$run.0 checkpoint.4-$run.1 checkpoint.4-$run.2" ]
}

# The trace of rank 0 has the collectives of 4 steps and what is computed meanwhile.
traces() { # DEVICE [ARGUMENT]
    # shellcheck disable=SC2046
    launch 2 $(arguments gpt) --steps 14 --profile "$work/profile" \
        --device "$1" ${2:+"$2"} || return
    if ! command -v "${PYTHON:-python3}"; then
        grep -c '"name": "all_reduce".*"cat": "range"' "$work/profile/trace.json"
        return
    fi
    "${PYTHON:-python3}" "$LIBCORE_SOURCE/tools/hidden-communication" \
        "$work/profile/trace.json" >"$work/shares" || return
    cat "$work/shares"
    grep '^[1-9][0-9]* all_reduce' "$work/shares" || return
    [ -z "$2" ] || grep '^[1-9][0-9]* reduce_scatter' "$work/shares"
}

# The processes of ends_on: the launcher and the ranks.
# shellcheck disable=SC2009 # pgrep does not print the arguments alone
started() { ps -eo pid=,args= | grep -F -e "--save $work/stopped" | grep -v grep; }
rank() { started | grep -v mpirun | sed -n '2s/^ *\([0-9]*\).*/\1/p'; }

# The checkpoint is that of the step which the message names.
is_saved() {
    # shellcheck disable=SC2046 # two words
    set -- $(sed -n 's/.*interrupted in epoch \([0-9]*\) after \([0-9]*\) .*/\1 \2/p' \
        "$work/err")
    echo "epoch $1, $2 samples; $# words"
    [ $# = 2 ] &&
        head -c 4096 "$work/stopped" | grep -a -q "\"position\":\"$2\"" &&
        head -c 4096 "$work/stopped" | grep -a -q "\"epoch\":\"$(($1 - 1))\""
}

# A signal to mpirun or to a rank ends all ranks after a step, which is saved and can
# be resumed; no process and no temporary file is left.  mpirun of Open MPI kills the
# ranks after a second: some may have saved no more than an epoch by then.
ends_on() { # SIGNAL launcher|rank [ARGUMENT]
    rm -rf "$work/ended" "$work"/stopped*
    mkdir "$work/ended" || return
    # shellcheck disable=SC2046
    TMPDIR=$work/ended OMPI_MCA_btl_vader_backing_directory=$work/ended \
        env --default-signal=INT timeout --foreground -s KILL 300 \
        "mpirun.$mpi" $([ "$mpi" = mpich ] || echo --oversubscribe) -n 2 \
        "$train" --distributed mpi --threads 1 $(arguments gpt) ${3:+"$3"} \
        --steps 1000000 --epochs 1000000 --save "$work/stopped" \
        >"$work/out" 2>"$work/err" </dev/null &
    launcher=$! tries=0
    until [ -e "$work/stopped" ] && [ "$(started | wc -l)" -ge 4 ]; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 2400 ] && kill -0 $launcher || return
    done
    case $2 in
    launcher) kill -"$1" $launcher ;; # of timeout, which passes it on
    rank) kill -"$1" "$(rank)" ;;
    esac
    # MPICH's status is 0 at times.
    wait $launcher && [ "$mpi" != mpich ] && return 1
    tries=0
    while started; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 400 ] || return
    done
    ls -R "$work/ended"
    cat "$work/err"
    rmdir "$work/ended" || return
    [ "$2$mpi" = launcheropenmpi ] || is_saved || return
    launch 2 --text "$work/text" --sample 0 --resume "$work/stopped" \
        --steps 1000000 --epochs 1
}

# A rank is killed: the others go on from the last checkpoint, with the same weights,
# until a signal ends them, after which none goes on.
goes_on() { # ARGUMENT
    rm -rf "$work"/stopped*
    # shellcheck disable=SC2046
    timeout --foreground -s KILL 300 \
        mpirun.openmpi --oversubscribe --enable-recovery -n 3 \
        "$train" --distributed mpi --threads 1 $(arguments gpt) "$1" --verify \
        --shrink --timeout 30 --steps 1000000 --epochs 1000000 \
        --save "$work/stopped" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$! tries=0
    until [ -e "$work/stopped" ]; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 2400 ] && kill -0 $launcher || return
    done
    kill -KILL "$(rank)"
    until grep -q 'core-train: 2 ranks go on from' "$work/err" &&
        [ "$(grep -c '^ranks' "$work/out")" = 2 ]; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 4800 ] && kill -0 $launcher || return
    done
    lines=$(wc -l <"$work/out")
    until [ "$(wc -l <"$work/out")" -gt $((lines + 3)) ]; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 4800 ] && kill -0 $launcher || return
    done
    kill -TERM "$(rank)"
    wait $launcher
    cat "$work/out" "$work/err"
    [ "$(grep -c 'go on from' "$work/err")" = 1 ] && is_saved &&
        launch 2 --text "$work/text" --sample 0 --epochs 1 \
        --steps 1000000 --resume "$work/stopped"
}

# The last of three ranks cannot read its data: it ends, and does not look for the
# ranks that are left.
ends_alone() {
    # shellcheck disable=SC2046,SC2016
    limited mpirun.openmpi --oversubscribe -n 3 sh -c '
        [ "$OMPI_COMM_WORLD_RANK" != 2 ] || set -- "$@" --text /nonexistent/text
        exec "$@"' sh "$train" --distributed mpi --threads 1 $(arguments gpt) \
        --shrink --timeout 120 --save "$work/stopped" >"$work/out" 2>"$work/err" &&
        return 1
    cat "$work/err"
    grep -q '^core-train: .*/nonexistent/text' "$work/err" &&
        ! grep 'core_comm_shrink\|no rank has ended\|go on' "$work/err"
}

# --save names a file of an older run: the ranks that are left after a rank is killed
# in the first epoch begin again, and do not resume that file.
begins_again() {
    seq 1000 60000 >"$work/long"
    # shellcheck disable=SC2046
    launch 2 $(arguments gpt) --save "$work/stopped" || return
    # shellcheck disable=SC2046
    timeout --foreground -s KILL 300 \
        mpirun.openmpi --oversubscribe --enable-recovery -n 3 \
        "$train" --distributed mpi --threads 1 $(arguments gpt) \
        --text "$work/long" --steps 1000000 --log 1 --shrink --timeout 20 \
        --save "$work/stopped" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$! tries=0
    until grep -q '^step .* loss' "$work/out"; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 2400 ] && kill -0 $launcher || return
    done
    kill -KILL "$(rank)"
    until grep -q 'ranks go on from' "$work/err"; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 4800 ] && kill -0 $launcher || return
    done
    kill -TERM $launcher
    wait $launcher
    cat "$work/err"
    grep -q 'core-train: 2 ranks go on from the beginning' "$work/err"
}

refuses() { # PATTERN ARGUMENT...
    pattern=$1
    shift
    "$train" --data "$data" "$@" >/dev/null 2>"$work/err"
    status=$?
    cat "$work/err"
    [ $status != 0 ] && grep -q -e "$pattern" "$work/err"
}

data_set idx_bands "$data" 99 40
seq 1000 1400 >"$work/text"

ok 'without a launcher, the error says what is missing' \
    refuses 'no engine "mpi" can be used.*launcher' --distributed mpi
ok 'an unknown engine is refused' \
    refuses 'no engine "carrier-pigeon".*there are: .*mp' --distributed carrier-pigeon
ok '--compile is refused' refuses 'does not support --compile' \
    --distributed mpi --compile
ok '--amp fp8 is refused' refuses 'does not support --amp fp8' \
    --distributed mpi --amp fp8
ok 'several devices are refused' refuses 'several --devices' \
    --distributed mpi --devices cpu,sim
ok '--shard alone is refused' refuses 'require --distributed' --shard
ok 'an unknown part is refused' refuses 'states, gradients and parameters' \
    --shard=everything
ok '--tensor-parallel alone is refused' refuses 'requires --distributed' \
    --tensor-parallel 2 --model gpt --text "$work/text"
ok '--tensor-parallel must divide the heads' \
    refuses 'parallel 3 does not divide --heads 4' \
    --tensor-parallel 3 --model gpt --text "$work/text" --distributed mpi
ok '--tensor-parallel does not support --shard' refuses 'neither --shard nor' \
    --tensor-parallel 2 --model gpt --text "$work/text" --distributed mpi --shard
ok '--shard=parameters needs gpt' refuses 'parameters requires --model gpt' \
    --shard=parameters --distributed mpi
ok '--verify alone is refused' refuses 'requires --distributed' --verify
ok '--timeout alone is refused' refuses 'timeout requires --dist' --timeout 9
ok '--shrink does not support --tensor-parallel' \
    refuses 'shrink does not support' --tensor-parallel 2 --model gpt \
    --text "$work/text" --distributed mpi --shrink

ok '--shrink requires mpi' refuses 'shrink requires --distributed mpi' \
    --distributed nccl --shrink

opencl=$("$LIBCORE_BUILD/core-info" --devices 2>/dev/null |
    sed -n 's/^ *\(opencl[:0-9]*\).*/\1/p' | head -n 1)
for mpi in openmpi mpich; do
    if ! present "$mpi"; then
        number=$((number + 1))
        echo "ok $number - core-train with $mpi # SKIP it is not installed"
        continue
    fi
    ok "$mpi: mlp on 2 ranks" trains mlp 2 cpu
    ok "$mpi: mlp on 4 ranks, one of which has no part of the last batch" \
        trains mlp 4 cpu
    ok "$mpi: cnn" trains cnn 2 cpu
    ok "$mpi: gpt on 3 ranks" trains gpt 3 cpu
    ok "$mpi: mlp on sim" trains mlp 2 sim
    ok "$mpi: SIGTERM to mpirun ends all ranks" ends_on TERM launcher
    ok "$mpi: SIGINT to a rank ends all ranks" ends_on INT rank --shard
    ok "$mpi: another number of ranks resumes" resumes mlp
    ok "$mpi: gpt with parts of the gradients" trains gpt 2 cpu --shard=gradients
    ok "$mpi: another number of ranks resumes such parts" resumes_shards
    if [ "$mpi" = openmpi ]; then
        ok "$mpi: the others go on without a killed rank" goes_on --shard
        ok "$mpi: an error of one rank ends it" ends_alone
        ok "$mpi: the others do not go on from another run" begins_again
    fi
    if [ "$mpi" = mpich ]; then # what differs is not in the MPI library
        ok "$mpi: mlp, cnn and gpt with --amp bf16" trains_bf16
        ok "$mpi: parts of gpt on 4 ranks" trains_parts gpt 4 cpu
        ok "$mpi: parts of gpt on sim" trains_parts gpt-adamw 2 sim
        ok "$mpi: other numbers of parts resume" resumes_parts gpt-adamw
        ok "$mpi: pieces of gpt on 2, 3 and 4 ranks" trains_pieces gpt
        ok "$mpi: pieces that move are found" finds_moved_pieces
        ok "$mpi: other numbers of pieces resume" resumes_pieces gpt-adamw
        ok "$mpi: 3 ranks cannot have halves" refuses_three_ranks
        ok "$mpi: dropout with parts and with pieces" drops_out
        ok "$mpi: ranks cannot read different checkpoints" refuses_a_mixture
        ok "$mpi: a damaged tensor is named" names_the_tensor
        ok "$mpi: a trace shows what is hidden" traces cpu --shard
        ok "$mpi: a trace of streams shows what kernels hide" traces sim
        ok "$mpi: SIGINT to mpirun ends all ranks" ends_on INT launcher
        ok "$mpi: SIGTERM ends ranks that have pieces" \
            ends_on TERM rank --shard=parameters
    fi
    if [ -n "$opencl" ]; then
        ok "$mpi: mlp on $opencl" trains mlp 2 "$opencl"
    else
        number=$((number + 1))
        echo "ok $number - $mpi: mlp on opencl # SKIP there is no such device"
    fi
done

echo "1..$number"
