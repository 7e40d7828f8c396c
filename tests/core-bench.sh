#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-bench: its rows, in text and JSON, and the errors it reports.  The values
# measured do not matter here.
bench=$LIBCORE_BUILD/core-bench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# quick ARGUMENT…: measures each row for the shortest possible time.
quick() {
    "$bench" --threads 1 --min-time 1e-9 "$@" >"$work/out"
}

# has NAME…: each is a row with a number above 0.
has() {
    for row in "$@"; do
        awk -v row="$row" '$1 == row && $2 > 0 { found = 1 }
            END { exit !found }' "$work/out" || {
            echo "no row $row"
            cat "$work/out"
            return 1
        }
    done
}

micro() {
    quick micro && has add1.plain add1_.inplace mul1.plain mm1x1.plain \
        sum1.plain disp.void1.unboxed tensor.empty1 view.transpose view.narrow
}

autograd() {
    quick autograd && has ad.chain_bwd_per_node ad.single_node_backward_call \
        'ad.chain_grad()_per_node' ad.chain_fwd_per_op \
        ad.jacobian_16 ad.jacobian_16_by_rows \
        ad.hessian_256 ad.hessian_256_by_rows
}

train() {
    quick train && has mlp_step_784-512-256-10_b128/t1 mlp_fwd/t1 mlp_bwd/t1 \
        lstm_fwd+bwd_T100B1C128_3/t1 lstm_fwd_nograd_T100B8C128_3/t1 \
        mlp_sgd/t1 mlp_tiny_8-16-4_b1_step/t1 \
        xfmr_block_fwd+bwd_B8T128C256H8/t1
}

networks() {
    quick networks && has resnet18_fwd+bwd_B1_64x64/t1 \
        resnet18_fwd_B1_64x64/t1 conv1d_net_fwd+bwd_B1_4096/t1 \
        gpt2_2layers_prefill_B1T64/t1 gpt2_2layers_decode_B1/t1 \
        llama_2layers_prefill_B1T64/t1 llama_2layers_decode_B1/t1
}

# Rows bound by the multipliers are printed as shares of a limit.
blas() {
    quick blas && has limit.fma_f32/t1 mm_out_64^3_f32/t1 mm_out_2048^3_f32/t1 \
        mm_out_1024^3_f32_Bt/t1 mm_out_1024^3_bf16/t1 mm_out_1024^3_f64/t1 \
        mv_out_1024_f32/t1 bmm_out_64x128^3_f32/t1 linear_128x784x512_f32/t1 \
        conv2d_32x64x56x56_k3p1_64_f32/t1 conv2d_same_channels_last_f32/t1 \
        conv2d_same_fwd+bwd_f32/t1 &&
        grep -E '^mm_out_1024\^3_f32/t1 .* GFLOP/s +[0-9]+ % of the limit$' \
            "$work/out"
}

# Without mpirun there is nothing to measure.
comm() {
    "$bench" comm >"$work/out" 2>"$work/err" || return
    cat "$work/err"
    grep '^comm: no rows: .*no engine "mpi" can be used' "$work/err"
}

# Larger rates and smaller times are better; rows with another unit or without a
# valid number are not compared.
compares() {
    cat >"$work/other" <<'END'
# another library
add1.plain 1e9 ns
mul1.plain 0.001 ns  # 1 2 3
sum1.plain 5 ms
exp1.plain nan ns
relu1.plain inf ns
add1_.inplace -3 ns
missing.row 1 ns
END
    quick --compare "$work/other" micro || return
    sed -n '/faster$/,$p' "$work/out" >"$work/table"
    cat "$work/table"
    [ "$(wc -l <"$work/table")" = 3 ] &&
        grep -E '^add1.plain .* [0-9.]+x$' "$work/table" &&
        grep -E '^mul1.plain .* 0.00x  slower$' "$work/table"
}

# Rows bound by memory are printed as shares of a limit.  Each slow row is flagged
# with its ratio, and the flags are counted.
elem() {
    quick elem && has limit.copy/t1 limit.read/t1 limit.nontemporal_copy/t1 &&
        grep -E '^add_out_16M_f32/t1 .* GB/s +[0-9]+ % of the limit$' \
            "$work/out" &&
        ! grep -E '^add_out_64K_f32_cached/t1 .*limit' "$work/out" &&
        has elem.copy.f32 elem.copy.bool elem.add.f32.contiguous \
        elem.exp.f64.channels_last elem.lines || return
    awk '$1 == "elem.slow" { total = $2; counted = 1 }
        $1 ~ /\.slow$/ && $1 != "elem.slow" {
            flags++
            if ($2 > 0.1) { print "not slow: " $0; bad = 1 }
        }
        $3 == "GB/s" && $1 ~ /^elem\./ && $1 !~ /^elem\.copy\./ { rows++ }
        $1 == "elem.lines" { lines = $2 }
        END { exit bad || !counted || total != flags || lines != rows }' \
        "$work/out" || {
        grep -e slow -e lines "$work/out"
        return 1
    }
}

# How much memory the step of the block needs does not depend on the machine.
compile() {
    quick compile && has compile.guards_8_inputs compile.chain3.eager \
        compile.mlp_tiny_8-16-4_b1_step.compile_ms \
        compile.mlp_tiny_8-16-4_b1_step.cached_ms \
        compile.chain13_16M.compiled/t1 compile.chain13_16K.compiled/t1 \
        compile.loop_chain13_item_16K.eager/t1 \
        compile.loop_chain13_item_16K.lazy/t1 \
        compile.norm_gelu_residual_4096x1024.compiled/t1 \
        compile.softmax_mask_dropout_64x128x128.compiled/t1 \
        compile.cnn_step_b32.compile_ms/t1 \
        compile.mlp_step_784-512-256-10_b128.compiled/t1 \
        compile.adam_step_784-512-256-10.compiled/t1 \
        compile.xfmr_block_fwd+bwd_B8T128C256H8.trace_ms/t1 \
        compile.xfmr_block_fwd+bwd_B8T128C256H8.cached_ms/t1 &&
        awk '$1 == "compile.xfmr_block_step_peak.eager" { all = $2 }
            $1 == "compile.xfmr_block_step_peak.compiled" { few = $2 }
            END { exit !(few > 0 && few <= 0.8 * all) }' "$work/out"
}

# A cache hit is the difference of two rows, which noise can make negative.
alloc() {
    quick alloc && has alloc.tensor_4KiB alloc.tensor_without_memory \
        alloc.tensor_4MiB alloc.tensors_4KiB_four alloc.tensor_recorded \
        alloc.rate_per_thread/t1 alloc.rate_per_thread/t2 &&
        grep -E '^alloc\.hit_4KiB +-?[0-9.]+ ns$' "$work/out"
}

alloc_without_sim() {
    LIBCORE_PLUGIN_DENY=sim quick alloc 2>"$work/err"
    got=$?
    cat "$work/err"
    [ $got = 0 ] && ! grep '^alloc\.' "$work/out" &&
        grep 'alloc: skipped: .*"sim"' "$work/err"
}

# No process starts in less than a tenth of a millisecond.
load() {
    quick load && has load.exec_to_main load.main_to_first_result \
        load.exec_to_first_result load.mapped_core+cpu \
        load.resident_core+cpu load.resident_process &&
        awk '$1 == "load.exec_to_first_result" { all = $2 }
            $1 == "load.mapped_core+cpu" { mapped = $2 }
            $1 == "load.resident_core+cpu" { resident = $2 }
            END { exit !(all > 0.1 && resident < mapped) }' "$work/out"
}

# A measured process that fails makes the benchmark fail.
load_without_cpu() {
    LIBCORE_PLUGIN_DENY=cpu "$bench" first-result >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    [ $got = 1 ] && grep 'core-bench: .*"cpu"' "$work/out"
}

# Rows of another device: launches, memory, products, attention, steps, graphs.
device() {
    quick --device sim && has dev.host.add1_out dev.host.add1_grad dev.add1 \
        dev.copy_64M_f32 dev.add_out_64M_bf16 dev.softmax_out_65536x1024_f16 \
        dev.transpose_copy_8192x8192_f32 dev.sort_16M_f32 \
        dev.mm_out_4096^3_tf32 dev.conv2d_same_fwd+bwd_bf16 \
        dev.attention_same_fwd+bwd_f32 dev.adam_64x1M_f32 \
        dev.mlp_step_64-64-10_b32_graph_speedup \
        dev.xfmr_block_fwd+bwd_bf16 || return
    grep -E '^dev.gelu_out_64M_f32 .* GB/s +[0-9]+ % of the limit$' \
        "$work/out" || return
    quick --device cpu 2>"$work/err" && cat "$work/err" &&
        has dev.add1 dev.xfmr_block_fwd+bwd_bf16 &&
        ! grep graph "$work/out" && grep 'graphs: skipped: .*capture' "$work/err"
}

json() {
    quick --json micro elem || return
    ! grep -v '^{"name": "[^"]*", "value": [0-9.e+-]*, "unit": "[^"]*"\(, "of_limit": [0-9.]*\)*}$' \
        "$work/out" && grep '"add1.plain"' "$work/out" &&
        grep -E '"add_out_16M_f32/t1".*"of_limit": [0-9.]*[1-9]' "$work/out"
}

counts() {
    rows=$("$bench" count) && [ -n "$rows" ] || return
    for row in $rows; do
        "$bench" count "$row" 2 || return
    done
}

# ends STATUS PATTERN ARGUMENT…: checks the exit status and the message.
ends() {
    status=$1 pattern=$2
    shift 2
    "$bench" "$@" >/dev/null 2>"$work/err"
    got=$?
    cat "$work/err"
    [ $got = "$status" ] && grep -e "$pattern" "$work/err"
}

wrong_usage() {
    ends 2 'unknown argument --colour' --colour || return
    ends 2 'unknown section speed' speed || return
    ends 2 'missing value after --threads' --threads || return
    ends 2 'threads accepts a number' --threads 0 || return
    ends 2 'threads accepts a number' --threads 1025 || return
    ends 2 'threads accepts a number' --threads 1x || return
    ends 2 'threads accepts a number' --threads 4294967297 || return
    ends 2 'min-time accepts seconds' --min-time inf || return
    ends 2 'min-time accepts seconds' --min-time 0 || return
    ends 2 'cannot read' --compare "$work/none" micro || return
    ends 2 'cannot read' --compare "$work" micro || return
    ends 2 'does not accept --json' --compare /dev/null --json micro || return
    ends 2 'no measured row is in' --threads 1 --min-time 1e-9 \
        --compare /dev/null micro || return
    ends 2 'does not accept a section: micro' --device sim micro || return
    ends 1 'no device "nothing"' --device nothing || return
    ends 2 'unknown row nothing' count nothing 1 || return
    ends 2 'a row and a number' count add1.plain none
}

full() {
    [ -c /dev/full ] || return 0
    for arguments in '--help' '--version' 'count' '--min-time 1e-9 micro'; do
        # shellcheck disable=SC2086 # splits into words
        ! "$bench" $arguments >/dev/full 2>"$work/err" &&
            grep 'writing standard output failed' "$work/err" || return
    done
}

no_cpu() {
    LIBCORE_PLUGIN_DENY=cpu ends 1 'no device "cpu"' micro
}

echo 1..19
ok 'micro prints rows of operators on one element' micro
ok 'autograd prints rows of backward' autograd
ok 'train prints rows of training steps' train
ok 'networks prints rows of whole networks' networks
ok 'elem prints element-wise operators, shares of limits and slow rows' elem
ok 'compile prints rows of compiled functions, and what they need' compile
ok 'alloc prints rows of memory of a device with streams' alloc
ok 'alloc without such a device is skipped with a reason' alloc_without_sim
ok 'load measures the start of processes' load
ok 'a failing measured process is reported' load_without_cpu
ok 'comm says why it has no rows' comm
ok 'blas prints rows of products and convolutions' blas
ok 'the output of another library can be compared' compares
ok 'a device prints its own rows' device
ok '--json prints one object per row' json
ok 'each counted row runs' counts
ok 'wrong usage is refused' wrong_usage
ok 'output that cannot be written is an error' full
ok 'a missing CPU device is an error' no_cpu
