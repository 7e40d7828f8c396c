#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The programs in docs/modes.md, docs/transforms.md, docs/compile.md,
# docs/expressions.md, docs/modules.md and docs/data.md compile without warnings from
# the public headers and do what the pages say.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
libraries=$(cd "$LIBCORE_BUILD/.libs" && pwd) || exit

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# has_examples PAGE COUNT: writes the Nth example of C to PAGE-N.c, the output that
# the page gives for it to PAGE-N.expected, and lines of JSON to PAGE-N.lines.
has_examples() {
    awk -v to="$work/$1-" '
        /^```c$/ { n++; file = to n ".c"; next }
        /^```output$/ { file = to n ".expected"; next }
        /^```json$/ { file = to n ".lines"; next }
        /^```/ { file = ""; next }
        file { print > file }
    ' "$LIBCORE_SOURCE/docs/$1.md"
    count=$2
    set -- "$work/$1"-*.c
    test $# = "$count"
}

runs() { # name
    # shellcheck disable=SC2086 # CC may have arguments
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "$work/$1" "$work/$1.c" \
        -I"$LIBCORE_BUILD/include" -I"$LIBCORE_SOURCE/include" \
        -iquote "$LIBCORE_BUILD/include/libcore" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -L"$libraries" -lcore -Wl,-rpath,"$libraries" &&
        "$work/$1" >"$work/out"
}

prints_as_expected() { # name
    runs "$1" && diff -u "$work/$1.expected" "$work/out"
}

prints() { # name, text...
    runs "$1" || return
    shift
    for text; do
        grep -qF -e "$text" "$work/out" || {
            cat "$work/out"
            return 1
        }
    done
}

# The program prints the lines of the page, in their order, and others where the page
# has "…".
prints_lines() { # program, example
    runs "$1" || return
    awk -v shown="$work/$2.lines" '
        function advance() {
            skips = 0
            while ((more = (getline line <shown)) > 0 && line == "…")
                skips = 1
        }
        BEGIN { advance() }
        more > 0 && $0 == line { count++; advance(); next }
        !skips { print "not on the page: " $0; failed = 1; exit }
        END {
            if (!failed && more > 0) print "not printed: " line
            exit failed || more > 0 || !count
        }' "$work/out"
}

fails() { # name, text...
    example=$1
    shift
    ! runs "$example" && for text; do
        grep -qF -e "$text" "$work/out" || {
            cat "$work/out"
            return 1
        }
    done
}

# A program that compiles the function `scale` of a file, calls it three times and
# prints what explain says.
calls_scale() { # file
    printf '#include <libcore/core.h>\n#include <stdio.h>\n'
    cat "$1"
    cat <<'END'
int main(void)
{
    int64_t sizes[] = {4, 4};
    core_compiled *compiled = NULL;
    core_tensor *x = NULL, *y = NULL;
    char *text = NULL;

    core_ones(sizes, 2, CORE_F32, NULL, &x);
    core_compile(scale, NULL, NULL, &compiled);
    for (int i = 0; i < 3; i++) {
        if (core_compiled_call(compiled, &x, 1, &y, 1) != CORE_OK)
            return 1;
        core_tensor_release(y);
    }
    core_compiled_explain(compiled, &text);
    fputs(text, stdout);
    core_text_free(text);
    core_compiled_release(compiled);
    core_tensor_release(x);
    return 0;
}
END
}

# A program that trains on 300 rows with the function `train` of a file, and prints
# how many it got in ten epochs.
calls_train() { # file
    printf '#include <libcore/core.h>\n#include <stdio.h>\n'
    printf 'static long long seen;\n'
    printf 'static core_status step(core_tensor *x, core_tensor *y)\n{\n'
    printf '    seen += core_tensor_size(x, 0);\n'
    printf '    return core_tensor_ndim(y) == 1 ? CORE_OK : CORE_ERROR_SHAPE;\n}\n'
    cat "$1"
    cat <<'END'
int main(void)
{
    core_tensor *x = NULL, *y = NULL;

    core_ones((const int64_t[]){300, 4}, 2, CORE_F32, NULL, &x);
    core_ones((const int64_t[]){300}, 1, CORE_I64, NULL, &y);
    if (train(x, y, NULL) != CORE_OK)
        puts(core_error_message());
    printf("rows: %lld\n", seen);
    core_tensor_release(x);
    core_tensor_release(y);
    return 0;
}
END
}

# A program with a module that has the function `residual` of a file.
calls_residual() { # file
    printf '#include <libcore/core.h>\n#include <libcore/expressions.h>\n'
    printf '#include <stdio.h>\n'
    cat "$1"
    cat <<'END'
int main(void)
{
    core_scope scope = core_scope_begin();
    core_module *module = NULL;
    core_tensor *x = NULL, *y = NULL;

    core_nn_expression("Residual", residual, &module);
    CORE_MODULE_CHILD(module, "inner", core_nn_linear, 3, 3, true, NULL);
    core_scope_end(scope);
    core_ones((const int64_t[]){2, 3}, 2, CORE_F32, NULL, &x);
    if (core_module_call(module, x, &y) != CORE_OK)
        puts(core_error_message());
    printf("out of place: %d\n", y != NULL && y != x);
    core_tensor_release(x);
    core_tensor_release(y);
    core_module_release(module);
    return 0;
}
END
}

# A program that turns queries and keys with the function `rotate` of a file: their
# products depend on the distance of the positions alone.
calls_rotate() { # file
    printf '#include <libcore/core.h>\n#include <libcore/network.h>\n'
    printf '#include <stdio.h>\n'
    cat "$1"
    cat <<'END'
static double product(core_tensor *q, core_tensor *k, int64_t at)
{
    q = core_x_select(rotate(q, at), 0, 0);
    k = core_x_select(rotate(k, at + 2), 0, 0);
    return core_x_item_float(core_x_sum(core_x_mul(q, k)));
}

int main(void)
{
    core_scope scope = core_scope_begin();
    core_tensor *q = core_x_randn(CORE_SIZES(1, 8));
    core_tensor *k = core_x_randn(CORE_SIZES(1, 8));
    double change = product(q, k, 5) - product(q, k, 0);
    double other = core_x_item_float(core_x_sum(core_x_mul(q, k)));

    printf("far: %d near: %d\n", change > -1e-4 && change < 1e-4,
           product(q, k, 0) != other);
    return core_scope_exit(scope);
}
END
}

echo 1..23
# Without them the other cases would be about nothing.
ok 'modes.md has four examples' has_examples modes 4
for program in 1 2 3 4; do
    ok "example $program of modes.md prints what the page says" \
        prints_as_expected "modes-$program"
done
ok 'transforms.md has one example' has_examples transforms 1
ok 'the example of transforms.md prints what the page says' \
    prints_as_expected transforms-1
ok 'compile.md has five examples' has_examples compile 5
calls_scale "$work/compile-2.c" >"$work/break.c"
calls_scale "$work/compile-3.c" >"$work/mended.c"
ok 'the first example of compile.md prints what the page says' \
    prints_lines compile-1 compile-1
ok 'the second has a graph break, of which explain says what the page does' \
    prints_lines break compile-2
ok 'the third has mended it' prints mended '"compiled_calls": 3' '"breaks": []'
ok 'the fourth, a loop, prints what the page says' prints_as_expected compile-4
ok 'the fifth, a lazy region, prints what the page says' \
    prints_as_expected compile-5
ok 'expressions.md has two examples' has_examples expressions 2
ok 'the first example prints a gradient, and the place of its error' \
    fails expressions-1 ' [6. 8.]]' 'matmul: ' \
    '(at ' '/expressions-1.c:18)'
ok 'the second, a network, prints what the page says' \
    prints_as_expected expressions-2
ok 'modules.md has four examples' has_examples modules 4
cd "$work" || exit
ok 'the first, a network, prints what the page says' \
    prints_as_expected modules-1
ok 'the second, of the weights of a file, prints what the page says' \
    prints_as_expected modules-2
calls_residual "$work/modules-3.c" >"$work/residual.c"
ok 'the third, a module, computes' prints residual 'out of place: 1'
calls_rotate "$work/modules-4.c" >"$work/rotate.c"
ok 'the fourth, rotary positions, depends on distances alone' \
    prints rotate 'far: 1 near: 1'
ok 'data.md has one example' has_examples data 1
calls_train "$work/data-1.c" >"$work/loader.c"
ok 'it reads each row in each epoch' prints loader 'rows: 3000'
