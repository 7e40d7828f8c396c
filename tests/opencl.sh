#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# plugins/opencl: builds from installed headers alone, reports why there is no
# device, and computes and trains on one if there is one.
work=$(mktemp -d)
# Memory that the OpenCL implementation holds until exit looks like a leak; the
# conformance runner counts the plugin's own.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
# shellcheck source=tests/support/train.sh
. "$LIBCORE_SOURCE/tests/support/train.sh"

says() { # pattern, command...
    pattern=$1
    shift
    "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -qE "$pattern" "$work/out"
}

echo '#include <CL/cl.h>' >"$work/has.c"
# shellcheck disable=SC2086 # CC may have arguments
if ! ${CC:-cc} -DCL_TARGET_OPENCL_VERSION=120 -fsyntax-only "$work/has.c" \
    2>/dev/null; then
    echo '1..0 # SKIP no CL/cl.h (Debian: opencl-headers)'
    exit 0
fi

# Built like a third party's plugin: from installed headers and a .pc file.
cp -r "$LIBCORE_SOURCE/plugins/opencl" "$work/plugin"
rm -f "$work/plugin/opencl_kernels.h"
# A checkout generates it in the build folder; a release ships it.
[ -f "$work/plugin/opencl_operations.h" ] ||
    cp "$LIBCORE_BUILD/plugins/opencl/opencl_operations.h" "$work/plugin/"
cat >"$work/libcore.pc" <<EOF
plugindir=$work/installed
bindir=$LIBCORE_BUILD
Name: libcore
Description: libcore
Version: 0
Cflags: -I$LIBCORE_SOURCE/include
EOF
ok 'the plugin builds from installed headers alone' \
    env PKG_CONFIG_PATH="$work" make -C "$work/plugin" \
    -f Makefile.standalone CFLAGS='-O1 -Wall -Wextra -Werror' install
plugin=$work/installed/core_opencl.so
LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$work/installed
XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"
export LIBCORE_PLUGIN_PATH XDG_CACHE_HOME

# An empty folder of platforms.
mkdir "$work/vendors"
ok 'a missing platform is reported' \
    says 'opencl.*(no OpenCL platform|no OpenCL loader)' \
    env OCL_ICD_VENDORS="$work/vendors" OPENCL_VENDOR_PATH="$work/vendors" \
    "$LIBCORE_BUILD/core-info"

# A file that is not a library.
mkdir "$work/none"
: >"$work/none/libOpenCL.so.1"
ok 'a missing OpenCL library is reported' \
    says 'none: no OpenCL loader' \
    env LD_LIBRARY_PATH="$work/none" "$LIBCORE_BUILD/core-info"

if ! says '^ *opencl .*streams' "$LIBCORE_BUILD/core-info" >/dev/null; then
    number=$((number + 1))
    echo "ok $number # SKIP no OpenCL device (Debian: pocl-opencl-icd)"
    echo "1..$number"
    exit 0
fi

# program NAME ARGUMENT…: builds it from its source against this tree, and runs
# it.
program() {
    built=$work/$1
    shift
    sanitize= # as libcore was built: ASan must be loaded first
    if ldd "$LIBCORE_BUILD/.libs/libcore.so" | grep -q libasan; then
        sanitize=-fsanitize=address
    fi
    # shellcheck disable=SC2086 # CC may have arguments
    ${CC:-cc} -std=gnu11 $sanitize -I"$LIBCORE_SOURCE/include" \
        -I"$LIBCORE_BUILD/include" -iquote "$LIBCORE_SOURCE/include/libcore" \
        -iquote "$LIBCORE_BUILD/include/libcore" -o "$built" \
        "$built.c" -L"$LIBCORE_BUILD/.libs" -lcore \
        -Wl,-rpath,"$LIBCORE_BUILD/.libs" && "$built" "$@"
}

# PoCL compiles most of the time.  What compares results within a tolerance runs
# kernels that are not optimized, without --full; what compares bits does not.
unoptimized= # a setting for env
[ -n "${LIBCORE_TEST_LONG-}" ] ||
    unoptimized=POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable
optimized() { # command...
    kept=$unoptimized
    unoptimized=
    "$@"
    optimized_status=$?
    unoptimized=$kept
    return $optimized_status
}

not_optimized() ( # function...
    [ -z "$unoptimized" ] || export POCL_EXTRA_BUILD_FLAGS="${unoptimized#*=}"
    "$@"
)

conformance() {
    # shellcheck disable=SC2086 # empty or one setting
    env $unoptimized "$LIBCORE_BUILD/core-conformance" --plugin "$plugin" \
        --timeout 600 "$@"
}

golden() { # set, arguments...
    set_path=$LIBCORE_SOURCE/tests/golden/$1
    shift
    # shellcheck disable=SC2086 # empty or one setting
    env $unoptimized "$LIBCORE_BUILD/core-conformance" --golden "$set_path" \
        --device opencl "$@"
}

ok 'the plugin passes level core' says 'level reached: core' \
    conformance --level core
cp "$LIBCORE_SOURCE"/tests/fixtures/opencl/copy_streams.c \
    "$LIBCORE_SOURCE"/tests/fixtures/opencl/fused_kernels.c \
    "$LIBCORE_SOURCE"/tests/fixtures/opencl/packed_weights.c "$work"
ok 'a copy stream copies beside the compute stream, in the order of events' \
    program copy_streams
# Fails if the plugin does not claim them.
ok "copy streams pass the suite's tests" says \
    'level core  *no failure: 2 PASS$' conformance --only core \
    --filter '*copy-streams*'
# PoCL compiles each kernel when it runs first, and has a folder for it.
mkdir "$work/fused"
fused_kernels() (
    XDG_CACHE_HOME=$work/fused
    says 'division of an integer by zero' program fused_kernels
)
no_more() { # name, how many
    [ "$(find "$work/fused" -type d -name "$1" | wc -l)" -le "$2" ]
}
ok 'compiled functions have the bits of operators, also while a kernel is built' \
    fused_kernels
ok 'the kernel that a build runs first is the one that calls use' \
    no_more dense_groups 1
ok 'packed weights follow changes and are released' says '^bits ' \
    program packed_weights
samples_of_weights() {
    says 'level ops  *no failure: 1 PASS$' conformance --only ops \
        --filter ops/rules/changed-operands-are-reread
}
tiles_have_the_same_bits() {
    bits=$(grep '^bits ' "$work/out")
    LIBCORE_OPENCL_PACKED=0
    export LIBCORE_OPENCL_PACKED
    says "^$bits\$" program packed_weights disabled
    status=$?
    unset LIBCORE_OPENCL_PACKED
    return $status
}
ok 'products have the same bits without packed weights' tiles_have_the_same_bits
ok 'packed weights keep their limit' env LIBCORE_OPENCL_PACKED=17380 \
    "$work/packed_weights" limited
ok 'an invalid limit is refused' says \
    'LIBCORE_OPENCL_PACKED is "64M"; it must be a number of bytes' env \
    LIBCORE_OPENCL_PACKED=64M "$LIBCORE_BUILD/core-info"
ok 'a weight that changed is packed again' samples_of_weights
# Compiles for ten seconds; the same functions run on cpu and sim in every run.
[ -z "${LIBCORE_TEST_LONG-}" ] ||
    ok 'gradients of each sample by core_vmap equal a loop' env \
        LIBCORE_TEST_DEVICE=opencl \
        "$LIBCORE_BUILD/tests/unit/transform/test_vmap_models"
if [ -n "${LIBCORE_TEST_SHORT-}" ]; then # the rest is too slow for a short run
    echo "1..$number"
    exit 0
fi

# A few operators and dtypes of each family: all combinations take 15 minutes.
# Calls of many elements take minutes.
quick=--quick
[ -z "${LIBCORE_TEST_LONG-}" ] || quick=
# Each filter selects samples, and all pass.  They run in one process: each loads
# the compiler and its library once, which takes longer than most kernels.
samples() { # filters...
    list=
    for filter; do list=$list${list:+,}ops/$filter; done
    # shellcheck disable=SC2086 # nothing if empty
    says 'level ops  *no failure: [1-9][0-9]* PASS$' conformance \
        --only ops $quick --filter "$list" || return
    for filter; do selects "ops/$filter" || return; done
}
selects() { # filter: a test that it selects is in the output
    while read -r _ _ _ test _; do
        # shellcheck disable=SC2254 # a pattern
        case $test in $1) return ;; esac
    done <"$work/out"
    echo "$1 selects no test"
    return 1
}
ok 'element-wise operators pass, also in half precision' samples \
    'add.Tensor/*f16' 'erf/f32' 'where.self/i8'
# LIBCORE_TEST_SLOW (sanitizers): the others differ in kernels, which no
# sanitizer sees.
if [ -z "${LIBCORE_TEST_SLOW-}" ]; then
    ok 'products, reductions and norms pass' samples 'addmm/bf16' 'sum/i32' \
        'linalg_vector_norm/f32' 'native_*norm*/f32'
    ok 'convolution, transposed convolution and pooling pass' samples \
        'convolution*/f32' '*_pool2d*/f16'
    ok 'indexing, masks, sorting and scans pass' samples 'scatter*/f32' \
        'index*/i64' 'masked_select/f32' 'sort*/f16' 'cumsum/f32' \
        'nll_loss_forward/f32' 'rules/bad-indices-are-reported'
    ok "random numbers equal the CPU's bit for bit" optimized samples 'uniform_/*' \
        'bernoulli/f32' 'random_.from/i64' 'normal_/f32'
    ok 'padding and interpolation pass' samples 'ref*_pad2d*/f32' \
        'upsample_bi*2d*/f32'
    ok 'gradients are correct and a model learns' says \
        'level training no failure: 2 PASS' conformance --only training \
        --filter 'training/[am]*'
fi
for set in public current; do
    ok "$set: golden cases of sum and addmm pass" \
        says '^[1-9][0-9]* passed, 0 failed' golden "$set" --filter sum,addmm
done
ok 'an operator without a kernel is reported as missing' \
    says '^0 passed, 0 failed, [1-9][0-9]* missing' golden public \
    --filter linalg_qr
ok 'LIBCORE_FALLBACK=count computes it on the CPU' \
    says '^[1-9][0-9]* passed, 0 failed' env LIBCORE_FALLBACK=count \
    "$LIBCORE_BUILD/core-conformance" \
    --golden "$LIBCORE_SOURCE/tests/golden/public" --device opencl \
    --filter linalg_qr

ok_kernel_lists 'operators without kernels are documented' opencl \
    docs/devices.md

# ------------------------------------------------ broadcast of values

# index_put at self[:, index] and the like, compared with the CPU.
cat >"$work/puts.c" <<'EOF'
#include <libcore/core.h>
#include <libcore/ops.h>
#include <stdio.h>
#include <string.h>
#define OK(call)                                                   \
    do {                                                           \
        if ((call) != CORE_OK) {                                   \
            printf("%s: %s\n", #call, core_error_message());       \
            return 1;                                              \
        }                                                          \
    } while (0)

static const struct {
    int64_t self[4], values[4];
    uint32_t ndim, vdim, at, gap; /* which are indexed: at, and at + gap */
} cases[] = {
    {{1, 3, 4}, {3, 1}, 3, 2, 1, 0},
    {{1, 3, 4}, {1, 3, 1}, 3, 3, 1, 0},
    {{1, 3, 4}, {4}, 3, 1, 1, 0},
    {{1, 1, 3, 4}, {3, 1}, 4, 2, 2, 0},
    {{2, 3, 4}, {3, 1}, 3, 2, 1, 0},
    {{2, 3, 4}, {1, 4}, 3, 2, 1, 0},
    {{3, 1, 4}, {1, 4}, 3, 2, 0, 0},
    {{3, 2, 3}, {3, 1}, 3, 2, 0, 2},
    {{1, 3, 3, 4}, {3, 1}, 4, 2, 1, 1},
    {{3, 1, 3, 4}, {3, 1, 4}, 4, 3, 0, 2},
};

static int put(core_device *device, int which, float *out)
{
    const int64_t rows[3] = {2, 0, 1}, three = 3;
    core_tensor *self, *values, *index, *result, *list[4] = {NULL};
    float numbers[64];
    uint32_t at = cases[which].at, second = at + cases[which].gap;

    for (int i = 0; i < 64; i++)
        numbers[i] = (float)i;
    OK(core_tensor_from_data(rows, CORE_I64, &three, 1, device, &index));
    OK(core_zeros(cases[which].self, cases[which].ndim, CORE_F32, device,
                  &self));
    OK(core_tensor_from_data(numbers + 1, CORE_F32, cases[which].values,
                             cases[which].vdim, device, &values));
    list[at] = list[second] = index;
    OK(core_index_put(self, list, second + 1, values, 0, &result));
    OK(core_tensor_read(result, out,
                        (size_t)core_tensor_numel(result) * sizeof *out));
    core_tensor_release(self);
    core_tensor_release(values);
    core_tensor_release(index);
    core_tensor_release(result);
    return 0;
}

int main(void)
{
    core_device *cpu, *opencl;
    int bad = 0;

    OK(core_device_find("cpu", &cpu));
    OK(core_device_find("opencl", &opencl));
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        float want[64] = {0}, got[64] = {0};

        if (put(cpu, i, want) || put(opencl, i, got))
            return 1;
        for (int k = 0; k < 64; k++)
            if (want[k] != got[k]) {
                printf("case %d, element %d: %g, not %g\n", i, k, got[k],
                       want[k]);
                bad = 1;
                break;
            }
    }
    return bad;
}
EOF
ok 'index_put broadcasts values like the CPU' not_optimized program puts

# Numbers given as arguments, and quotients of u8, compared with the CPU bit by
# bit.
cat >"$work/numbers.c" <<'EOF'
#include <libcore/core.h>
#include <libcore/ops.h>
#include <stdio.h>
#define OK(call)                                                   \
    do {                                                           \
        if ((call) != CORE_OK) {                                   \
            printf("%s: %s\n", #call, core_error_message());       \
            return 1;                                              \
        }                                                          \
    } while (0)

enum { STEPS = 1001 };
/* Not a double. */
static const int64_t large = (INT64_C(1) << 53) + 1;

static int line(core_device *device, double *out)
{
    core_tensor *result;

    OK(core_linspace(core_float(.1), core_float(.7), STEPS, CORE_F64, device,
                     &result));
    OK(core_tensor_read(result, out, STEPS * sizeof *out));
    core_tensor_release(result);
    return 0;
}

static int add(core_device *device, int64_t *out)
{
    const int64_t where[2] = {1, 0}, one[2] = {1, 1}, two = 2;
    core_tensor *self, *index, *result;

    OK(core_tensor_from_data(one, CORE_I64, &two, 1, device, &self));
    OK(core_tensor_from_data(where, CORE_I64, &two, 1, device, &index));
    OK(core_scatter_value_reduce(self, 0, index, core_int(large), "add",
                                 &result));
    OK(core_tensor_read(result, out, 2 * sizeof *out));
    core_tensor_release(self);
    core_tensor_release(index);
    core_tensor_release(result);
    return 0;
}

/* All pairs of u8 but those with a divisor of 0, for which 1 is taken. */
enum { PAIRS = 256 * 256, QUOTIENTS = 4 };
static uint8_t want8[QUOTIENTS][PAIRS], got8[QUOTIENTS][PAIRS];

static int quotients(core_device *device, uint8_t out[][PAIRS])
{
    static uint8_t a[PAIRS], b[PAIRS];
    const int64_t size = PAIRS;
    core_tensor *in[2], *results[QUOTIENTS];

    for (int i = 0; i < PAIRS; i++) {
        a[i] = (uint8_t)(i / 256);
        b[i] = (uint8_t)(i % 256 ? i % 256 : 1);
    }
    OK(core_tensor_from_data(a, CORE_U8, &size, 1, device, &in[0]));
    OK(core_tensor_from_data(b, CORE_U8, &size, 1, device, &in[1]));
    OK(core_div_mode(in[0], in[1], "trunc", &results[0]));
    OK(core_floor_divide(in[0], in[1], &results[1]));
    OK(core_remainder(in[0], in[1], &results[2]));
    OK(core_gcd(in[0], in[1], &results[3]));
    for (int k = 0; k < QUOTIENTS; k++) {
        OK(core_tensor_read(results[k], out[k], PAIRS));
        core_tensor_release(results[k]);
    }
    core_tensor_release(in[0]);
    core_tensor_release(in[1]);
    return 0;
}

int main(void)
{
    core_device *cpu, *opencl;
    double want[STEPS], got[STEPS];
    int64_t sums[2];
    int bad = 0;

    OK(core_device_find("cpu", &cpu));
    OK(core_device_find("opencl", &opencl));
    if (line(cpu, want) || line(opencl, got) || add(opencl, sums) ||
        quotients(cpu, want8) || quotients(opencl, got8))
        return 1;
    for (int i = 0; i < QUOTIENTS * PAIRS && !bad; i++) {
        int k = i / PAIRS, pair = i % PAIRS;

        if (want8[k][pair] != got8[k][pair]) {
            printf("quotient %d of %d and %d: %d, not %d\n", k, pair / 256,
                   pair % 256, got8[k][pair], want8[k][pair]);
            bad = 1;
        }
    }
    for (int k = 0; k < STEPS && !bad; k++)
        if (want[k] != got[k]) {
            printf("linspace, element %d: %.17g, not %.17g\n", k, got[k],
                   want[k]);
            bad = 1;
        }
    for (int k = 0; k < 2; k++)
        if (sums[k] != large + 1) {
            printf("scatter, element %d: %lld, not %lld\n", k,
                   (long long)sums[k], (long long)large + 1);
            bad = 1;
        }
    return bad;
}
EOF
ok "numbers given as arguments and quotients of u8 have the CPU's bits" \
    program numbers

# A query that may attend to no key has a result and gradients of 0.
cat >"$work/masked.c" <<'EOF'
#include <libcore/autograd.h>
#include <libcore/core.h>
#include <libcore/ops.h>
#include <math.h>
#include <stdio.h>
#define OK(call)                                                   \
    do {                                                           \
        if ((call) != CORE_OK) {                                   \
            printf("%s: %s\n", #call, core_error_message());       \
            return 1;                                              \
        }                                                          \
    } while (0)

static int has(const char *what, core_tensor *tensor, const float *right)
{
    int64_t count = core_tensor_numel(tensor);
    float got[6];

    OK(core_tensor_read(tensor, got, (size_t)count * sizeof *got));
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - right[i]) <= 2e-6f)) {
            printf("%s, element %d: %.9g, not %.9g\n", what, (int)i, got[i],
                   right[i]);
            return 1;
        }
    return 0;
}

static int attend(core_device *device, const void *numbers, core_dtype dtype)
{
    static const float q[] = {1, 2, 3, 4}, k[] = {1, 0, 0, 1, 1, 1};
    static const float v[] = {1, 2, 3, 4, 5, 6}, ones[] = {1, 1, 1, 1};
    static const float out[] = {0, 0, 2.339523f, 3.339523f};
    static const float dq[] = {0, 0, -0.6255943f, 0.6255943f};
    static const float dk[] = {-1.8767828f, -2.5023772f, 1.8767828f,
                               2.5023772f,  0,           0};
    static const float dv[] = {.3302384f, .3302384f, .6697615f,
                               .6697615f, 0,         0};
    static const int64_t two[] = {2, 2}, three[] = {3, 2}, wide[] = {2, 3};
    core_tensor *query, *key, *value, *grad, *mask, *result;
    int bad;

    OK(core_tensor_from_data(q, CORE_F32, two, 2, device, &query));
    OK(core_tensor_from_data(k, CORE_F32, three, 2, device, &key));
    OK(core_tensor_from_data(v, CORE_F32, three, 2, device, &value));
    OK(core_tensor_from_data(ones, CORE_F32, two, 2, device, &grad));
    OK(core_tensor_from_data(numbers, dtype, wide, 2, device, &mask));
    OK(core_tensor_set_requires_grad(query, true));
    OK(core_tensor_set_requires_grad(key, true));
    OK(core_tensor_set_requires_grad(value, true));
    OK(core_scaled_dot_product_attention(query, key, value, mask, 0, false,
                                         NULL, false, &result));
    OK(core_backward(&result, 1, &grad, 0));
    bad = has("result", result, out) | has("query", core_tensor_grad(query), dq) |
          has("key", core_tensor_grad(key), dk) |
          has("value", core_tensor_grad(value), dv);
    core_tensor_release(query);
    core_tensor_release(key);
    core_tensor_release(value);
    core_tensor_release(grad);
    core_tensor_release(mask);
    core_tensor_release(result);
    return bad;
}

int main(void)
{
    static const uint8_t keeps[] = {0, 0, 0, 1, 1, 0};
    static const float adds[] = {-INFINITY, -INFINITY, -INFINITY,
                                 0,         0,         -INFINITY};
    core_device *opencl;

    OK(core_device_find("opencl", &opencl));
    return attend(opencl, keeps, CORE_BOOL) | attend(opencl, adds, CORE_F32);
}
EOF
ok 'a query that may attend to no key has a result of 0' not_optimized \
    program masked

# --------------------------------------------------- errors of OpenCL

# A fake libOpenCL that passes calls on, except those that CL_FAULT makes fail.
cat >"$work/fault.c" <<'EOF'
#define _GNU_SOURCE
#include "api.h"
#include <dlfcn.h>

#define X(name)                                                       \
    __attribute__((visibility("hidden"))) void *real_##name;          \
    __asm__(".text\n.globl cl" #name "\n.type cl" #name ",@function\n" \
            "cl" #name ": jmp *real_" #name "(%rip)\n");
OPENCL_FUNCTIONS(X)
#undef X

static cl_int build(void)
{
    return CL_BUILD_PROGRAM_FAILURE;
}

static cl_int build_log(cl_program program, cl_device_id device,
                        cl_program_build_info what, size_t capacity, void *to,
                        size_t *size)
{
    static const char log[] = "line 7 is not to its taste";

    (void)program;
    (void)device;
    (void)what;
    if (size)
        *size = sizeof log;
    if (to && capacity >= sizeof log)
        memcpy(to, log, sizeof log);
    return CL_SUCCESS;
}

static cl_mem buffer(cl_context context, cl_mem_flags flags, size_t size,
                     void *host, cl_int *code)
{
    (void)context;
    (void)flags;
    (void)size;
    (void)host;
    *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
}

static cl_int lost(void)
{
    return CL_DEVICE_NOT_AVAILABLE;
}

__attribute__((constructor)) static void begin(void)
{
    void *library = dlopen(getenv("CL_REAL"), RTLD_NOW | RTLD_LOCAL);
    const char *fault = getenv("CL_FAULT");

    if (!library || !fault)
        return;
#define X(name) real_##name = dlsym(library, "cl" #name);
    OPENCL_FUNCTIONS(X)
    if (strcmp(fault, "build") == 0) {
        real_BuildProgram = (void *)build;
        real_GetProgramBuildInfo = (void *)build_log;
    } else if (strcmp(fault, "memory") == 0) {
        real_CreateBuffer = (void *)buffer;
    } else if (strcmp(fault, "lost") == 0) {
        real_EnqueueNDRangeKernel = (void *)lost;
    }
}
EOF
real=$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null |
    sed -n 's/.*libOpenCL\.so\.1 .*=> //p' | head -n 1)
# shellcheck disable=SC2086 # CC may have arguments
if [ -n "$real" ] && [ "$(uname -m)" = x86_64 ] && mkdir "$work/fault" &&
    ${CC:-cc} -shared -fPIC -O1 -w -I"$work/plugin" \
        -I"$LIBCORE_SOURCE/include" -o "$work/fault/libOpenCL.so.1" \
        "$work/fault.c" -ldl 2>"$work/log"; then
    faulty() { # fault: a call on the device
        env CL_REAL="$real" CL_FAULT="$1" LIBCORE_OPENCL_CACHE=0 \
            LD_LIBRARY_PATH="$work/fault:$LD_LIBRARY_PATH" \
            "$LIBCORE_BUILD/core-conformance" \
            --golden "$LIBCORE_SOURCE/tests/golden/public" --device opencl \
            --filter relu
    }
    ok 'a library that only passes calls on changes nothing' \
        says '^[1-9][0-9]* passed, 0 failed' faulty none
    ok 'a kernel that does not compile is reported with its build log' \
        says 'does not compile for .*line 7 is not to its taste' faulty build
    ok 'a failed device allocation is out of memory' \
        says 'opencl is out of memory' faulty memory
    ok 'an unavailable device is lost' \
        says '"opencl" is lost.*CL_DEVICE_NOT_AVAILABLE' faulty lost
else
    number=$((number + 1))
    echo "ok $number - errors of OpenCL # SKIP the fake library does not build"
fi

# ------------------------------------------------------- programs on disk

# The plugin reads binaries from PoCL only if a cache folder is set.
cached() {
    # shellcheck disable=SC2086 # empty or one setting
    env $unoptimized LIBCORE_OPENCL_CACHE="$work/programs" \
        "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" --device opencl \
        --filter add.Tensor
}
cached_programs() {
    ls "$work"/programs/*.bin
}
ok 'golden cases of add.Tensor pass' says '^[1-9][0-9]* passed, 0 failed' \
    cached
ok 'compiled programs are cached' cached_programs
# The folder that LIBCORE_CACHE sets.
in_host_cache() { # LIBCORE_OPENCL_CACHE
    rm -rf "$work/host"
    env LIBCORE_CACHE="$work/host" LIBCORE_OPENCL_CACHE="$1" \
        "$LIBCORE_BUILD/core-conformance" --device opencl \
        --golden "$LIBCORE_SOURCE/tests/golden/public" --filter relu \
        >"$work/out" 2>&1 || return
    ls "$work"/host/opencl/*.bin
}
ok 'LIBCORE_OPENCL_CACHE=1 uses the folder of LIBCORE_CACHE' in_host_cache 1
not_cached() {
    ! in_host_cache 0 && grep -qE '^[1-9][0-9]* passed, 0 failed' "$work/out"
}
ok 'LIBCORE_OPENCL_CACHE=0 disables the cache' not_cached
# Damaged and truncated files are compiled again.
whole=$(cksum "$work"/programs/*.bin)
odd=0
for file in "$work"/programs/*.bin; do
    odd=$((1 - odd))
    if [ $odd = 1 ]; then
        printf 'damaged' | dd of="$file" bs=1 seek=60 conv=notrunc 2>/dev/null
    else
        : >"$file"
    fi
done
ok 'damaged cache files are not used' \
    says '^[1-9][0-9]* passed, 0 failed' cached
replaced() {
    [ "$whole" = "$(cksum "$work"/programs/*.bin)" ] || not_empty
}
not_empty() { # a second build of a program may have other bytes
    for file in "$work"/programs/*.bin; do
        [ "$(wc -c <"$file")" -gt 1000 ] || return
    done
}
ok 'damaged cache files are replaced' replaced
: >"$work/file"
unwritable() {
    LIBCORE_OPENCL_CACHE=$work/file/below
    export LIBCORE_OPENCL_CACHE
    golden public --filter relu
}
ok 'an unwritable cache folder is not an error' \
    says '^[1-9][0-9]* passed, 0 failed' unwritable
unset LIBCORE_OPENCL_CACHE

# --------------------------------------------------------------- training

# learns SHARE ARGUMENT…: the last loss is below SHARE of the first.
learns() {
    share=$1
    shift
    # shellcheck disable=SC2086 # empty or one setting
    env $unoptimized "$train" --device opencl --log 1 "$@" >"$work/out" 2>&1
    status=$?
    cat "$work/out"
    [ $status = 0 ] || return
    awk -v share="$share" '$1 == "step" && $3 == "loss" {
            if (!first) first = $4
            last = $4
        }
        END { exit !(first > 0 && last < share * first) }' "$work/out"
}

data_set idx_bands "$work/bands" 160 32
seq 1000 1400 >"$work/text"
ok 'an MLP learns' learns 0.5 --data "$work/bands" --batch 32 \
    --steps 15
few_steps() {
    run --device opencl --model mlp --data "$work/bands" --batch 32 --steps 3 \
        "$@"
}
compiled_steps_lead_to_the_same_weights() {
    few_steps || return
    weights=$(of weights)
    few_steps --compile || return
    echo "$last"
    same "$weights" "$(of weights)" && same "$(of compiled_steps)" 3
}
ok 'compiled steps lead to the same weights' \
    compiled_steps_lead_to_the_same_weights
# Their kernels are tested one by one above, and PoCL compiles these for half a
# minute.
if [ -z "${LIBCORE_TEST_LONG-}" ]; then
    echo "1..$number"
    exit 0
fi
# There are no FP8 kernels: libcore emulates them with other operators.
ok 'an MLP learns in fp8' learns 0.5 --amp fp8 --data "$work/bands" \
    --batch 32 --steps 15
ok 'a convolutional network learns' learns 0.7 --model cnn \
    --data "$work/bands" --batch 16 --lr 0.003 --warmup 3 --steps 20
ok 'a transformer learns' learns 0.8 --model gpt --text "$work/text" \
    --context 16 --layers 1 --heads 2 --width 32 --batch 8 --lr 0.003 \
    --warmup 3 --steps 30 --sample 5

ok 'the plugin passes level training' says 'level reached: training' \
    conformance --level training \
    --golden "$LIBCORE_SOURCE/tests/golden/public"
for set in public current; do
    ok "$set: every recorded case passes" \
        says '^[1-9][0-9]* passed, 0 failed' golden "$set"
done
echo "1..$number"
