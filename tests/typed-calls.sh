#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# ops.h in its two forms: typed calls as inline functions, and declared in all
# files of a program and defined in one of them; and expressions.h, which needs
# neither, and takes numbers of C, in C and C++.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

cat >"$work/sum.c" <<'END'
#include <libcore/core.h>

core_status sum_of(core_tensor *x, double *out)
{
    core_tensor *sum = NULL;
    core_status status = core_sum(x, CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_tensor_read(sum, out, sizeof *out);
    core_tensor_release(sum);
    return status;
}
END
cat >"$work/main.c" <<'END'
#include <libcore/core.h>

#include <stdio.h>
#include <string.h>

core_status sum_of(core_tensor *x, double *out);

int main(void)
{
    int64_t size = 5;
    core_tensor *x = NULL;
    double sum = 0;

    if (core_ones(&size, 1, CORE_F64, NULL, &x) != CORE_OK ||
        sum_of(x, &sum) != CORE_OK) {
        puts(core_error_message());
        return 1;
    }
    core_tensor_release(x);
    if (core_ones(&size, 1, CORE_F64, NULL, NULL) == CORE_OK ||
        !strstr(core_error_message(), "core_ones: the argument out is NULL"))
        return 1;
    printf("%g\n", sum);
    return sum != 5;
}
END
cat >"$work/calls.c" <<'END'
#define CORE_OPS_IMPLEMENTATION
#include <libcore/ops.h>
END

standard='c11'
program() { # file, compiler's arguments...
    file=$1
    shift
    # shellcheck disable=SC2086 # CC may have arguments
    ${CC:-cc} -std="$standard" -Wall -Wextra -Werror -o "$work/$file" \
        -I"$LIBCORE_BUILD/include" -I"$LIBCORE_SOURCE/include" \
        -iquote "$LIBCORE_BUILD/include/libcore" \
        -iquote "$LIBCORE_SOURCE/include/libcore" "$@" \
        -L"$LIBCORE_BUILD/.libs" -lcore -Wl,-rpath,"$LIBCORE_BUILD/.libs"
}

definitions() {
    program calls.o -c -fPIC -ffunction-sections -DCORE_OPS_EXTERN \
        "$work/calls.c"
}

inline_calls() {
    program inline "$work/main.c" "$work/sum.c" && "$work/inline"
}

one_definition() {
    program extern -DCORE_OPS_EXTERN -Wl,--gc-sections \
        "$work/main.c" "$work/sum.c" "$work/calls.o" && "$work/extern" ||
        return
    nm "$work/extern" | grep -w core_sum && ! nm "$work/extern" |
        grep -w core_matmul
}

no_definition() {
    ! program missing -DCORE_OPS_EXTERN "$work/main.c" "$work/sum.c" \
        2>"$work/out" && grep -w core_sum "$work/out"
}

not_exported() {
    program shared.so -shared -fPIC -DCORE_OPS_EXTERN "$work/sum.c" \
        "$work/calls.o" && nm -D --defined-only "$work/shared.so" |
        grep -w sum_of && ! nm -D --defined-only "$work/shared.so" |
        grep -E ' T core_'
}

cat >"$work/scope.c" <<'END'
#include <libcore/core.h>
#include <libcore/network.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    const double data[4] = {1, 2, 3, 4};
    core_scope scope = core_scope_begin();
    core_tensor *x, *y, *a, *b;
    double sum;

    x = core_x_from_data(data, CORE_F64, CORE_SIZES(2, 2), NULL);
    y = core_x_add(core_x_mul(core_x_matmul(x, x), 1), core_x_add(x, 0.0));
    core_x_save(argv[argc - 1], {"x", x}, {core_x_text("%d", 2), y});
    y = core_x_load(argv[argc - 1], "2");
    CORE_UNPACK(core_x_unbind(core_x_cat(CORE_LIST(x, y))), &a, &b, &x, &y);
    sum = core_x_item_float(core_x_sum_dim(y, CORE_SIZES(0)));
    printf("%g\n", sum);
    core_x_add_(core_x_topk(b, 1).values, core_x_clamp(a, 2, data[3]));
    if (core_scope_end(scope) != CORE_OK)
        puts(core_error_message());
    return sum != 44;
}
END

expressions() { # compiler's arguments...
    program expressions -pedantic -DCORE_OPS_EXTERN "$@" &&
        "$work/expressions" "$work/saved" &&
        "$work/expressions" "$work/saved" |
        grep -E '^add_.Tensor: .* \(at .*scope\.c[cp]*:20\)$'
}

# Not only a warning, and a crash.
number_first() {
    cat >"$work/first.c" <<'END'
#include <libcore/core.h>
#include <libcore/expressions.h>

core_tensor *scaled(core_tensor *x)
{
    return core_x_mul(FIRST, x);
}
END
    program first.o -w -Wno-error -c -DFIRST=x "$work/first.c" &&
        program first.o -w -Wno-error -c -DFIRST=NULL "$work/first.c" &&
        ! program first.o -w -Wno-error -c -DFIRST=3 "$work/first.c" \
            2>"$work/out" && grep -w int "$work/out"
}

# Once, although no setting of the log prints anything.
no_scope() {
    cat >"$work/none.c" <<'END'
#include <libcore/core.h>
#include <libcore/expressions.h>

int main(void)
{
    core_scope scope = core_scope_begin();

    core_x_neg(NULL);
    core_scope_end(scope);
    for (int i = 0; i < 3; i++)
        if (core_x_ones(CORE_SIZES(1)))
            return 1;
    return core_scope_status() == CORE_OK;
}
END
    program none "$work/none.c" && "$work/none" 2>"$work/out" &&
        test "$(wc -l <"$work/out")" -eq 1 &&
        grep 'error: scope: .*none.c:11): .*core_scope_begin' "$work/out"
}

ok 'the definitions are compiled' definitions
ok 'typed calls are inline functions' inline_calls
ok 'typed calls are declared, and defined in one file' one_definition
ok 'a program without the definitions is not linked' no_definition
ok 'a shared library does not export the definitions' not_exported
ok 'calls of expressions.h need no definitions' expressions "$work/scope.c"
ok 'a number in the place of the first tensor does not compile' number_first
ok 'the first call without a scope is printed' no_scope
standard='c99'
ok 'expressions.h is C99' expressions "$work/scope.c"
compiler=${CXX:-c++} # may have arguments
if command -v "${compiler%% *}" >/dev/null 2>&1; then
    CC=$compiler standard=c++11
    ok 'expressions.h is C++11' expressions -x c++ "$work/scope.c" -x none
else
    skip 'expressions.h is C++11' 'no C++ compiler'
fi
echo "1..$number"
