#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The programs in examples/ compile without warnings and compute what they say:
# in the build tree, or, with flags of the compiler in EXAMPLES_FLAGS, against an
# installation.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
examples=${EXAMPLES-$LIBCORE_SOURCE/examples}

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

if [ -z "${EXAMPLES_FLAGS-}" ]; then
    libraries=$(cd "$LIBCORE_BUILD/.libs" && pwd) || exit
    EXAMPLES_FLAGS="-I$LIBCORE_BUILD/include -I$LIBCORE_SOURCE/include
        -iquote $LIBCORE_BUILD/include/libcore
        -iquote $LIBCORE_SOURCE/include/libcore
        -L$libraries -lcore -Wl,-rpath,$libraries"
fi

compiles() { # source
    # shellcheck disable=SC2086 # lists of arguments
    ${CC:-cc} -std=c11 -O1 -Wall -Wextra -Werror -o "$work/$(basename "$1" .c)" \
        "$1" $EXAMPLES_FLAGS
}

# Prints what a program printed if it did not print all of the texts.
prints() { # program and arguments, --, texts...
    command=
    while [ "$1" != -- ]; do
        command="$command $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # a command and its arguments
    "$work/"${command# } >"$work/out" 2>&1 || {
        cat "$work/out"
        return 1
    }
    for text; do
        grep -qF -e "$text" "$work/out" || {
            cat "$work/out"
            return 1
        }
    done
}

# The loss of the last line of a loss is below that of the first one.
learns() { # factor
    awk -v factor="$1" '
        / loss / && !n++ { first = $NF }
        / loss / { last = $NF }
        END { exit n < 2 || last > factor * first }' "$work/out" || {
        cat "$work/out"
        return 1
    }
}

lstm_learns() {
    prints lstm -- 'continued alone' && learns 0.1 &&
        awk '/continued alone/ { exit $3 > 0.4 }' "$work/out"
}

# With the layers that it has trained and saved.
voice_is_detected() {
    prints voice_activity cpu "$work/voice.safetensors" -- 'are right' &&
        learns 0.2 && awk '/are right/ { exit $4 < 95 }' "$work/out" &&
        test -s "$work/voice.safetensors"
}

voice_refuses() {
    fails none voice_activity none "$work/voice.safetensors" &&
        fails "$work/none/file" voice_activity cpu "$work/none/file"
}

resnet_learns() {
    prints resnet18 cpu 8 -- 'step 7' && learns 0.7
}

# Random weights of a GPT-2 and of a Llama, of two layers each.
writes_weights() {
    cat >"$work/weights.c" <<'END'
#include <libcore/core.h>
#include <libcore/expressions.h>
#include <libcore/safetensors.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 128, WORDS = 300, PLACES = 1024, LAYERS = 2 };

static core_named_tensor all[128];
static char names[128][64];
static size_t count;

static void add(const char *name, int64_t rows, int64_t columns, double mean)
{
    core_tensor *x = rows ? core_x_randn(CORE_SIZES(rows, columns))
                          : core_x_randn(CORE_SIZES(columns));

    x = core_x_mul_scalar(x, core_float(0.2));
    strcpy(names[count], name);
    all[count].name = names[count];
    all[count++].tensor = core_x_add_scalar(x, core_float(mean));
}

static void add_part(int layer, const char *part, int64_t rows, int64_t columns)
{
    char name[64];

    snprintf(name, sizeof name, "h.%d.%s.weight", layer, part);
    add(name, rows, columns, rows ? 0 : 1);
    snprintf(name, sizeof name, "h.%d.%s.bias", layer, part);
    add(name, 0, columns, 0);
}

static void save(const char *path)
{
    CORE_CHECK(core_safetensors_save(path, all, count, NULL, 0));
    count = 0;
}

/* The same tensors as two shards in a folder, with the names of a
 * GPT2LMHeadModel, "transformer.wte.weight". */
static void save_shards(const char *folder)
{
    const char *const files[] = {"model-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors"};
    FILE *index = fopen(
        core_x_text("%s/model.safetensors.index.json", folder), "w");

    fprintf(index, "{\"metadata\": {}, \"weight_map\": {");
    for (size_t i = 0; i < count; i++) {
        all[i].name = core_x_text("transformer.%s", names[i]);
        fprintf(index, "%s\n\"%s\": \"%s\"", i ? "," : "", all[i].name,
                files[i >= count / 2]);
    }
    fprintf(index, "}}\n");
    fclose(index);
    CORE_CHECK(core_safetensors_save(
        core_x_text("%s/%s", folder, files[0]), all, count / 2, NULL, 0));
    CORE_CHECK(core_safetensors_save(core_x_text("%s/%s", folder, files[1]),
                                     all + count / 2, count - count / 2, NULL,
                                     0));
    for (size_t i = 0; i < count; i++)
        all[i].name = names[i];
}

static void add_norm(const char *name, int64_t channels)
{
    add(core_x_text("%s.weight", name), 0, channels, 1);
    add(core_x_text("%s.bias", name), 0, channels, 0);
    add(core_x_text("%s.running_mean", name), 0, channels, 0);
    add(core_x_text("%s.running_var", name), 0, channels, 0);
    all[count - 1].tensor = core_x_abs(all[count - 1].tensor);
    add(core_x_text("%s.num_batches_tracked", name), 0, 1, 0);
    all[count - 1].tensor = core_x_zeros(CORE_NO_SIZES, CORE_I64);
}

static void add_conv(const char *name, int64_t out, int64_t in, int64_t side)
{
    add(core_x_text("%s.weight", name), out, in * side * side, 0);
    all[count - 1].tensor = core_x_reshape(
        core_x_mul(all[count - 1].tensor, 0.2), CORE_SIZES(out, in, side, side));
}

/* The names of torchvision.models.resnet18. */
static void save_resnet(const char *path)
{
    add_conv("conv1", 64, 3, 7);
    add_norm("bn1", 64);
    for (int i = 0; i < 8; i++) {
        const char *name = core_x_text("layer%d.%d", i / 2 + 1, i % 2);
        int64_t out = 64 << (i / 2), in = i > 1 && i % 2 == 0 ? out / 2 : out;

        add_conv(core_x_text("%s.conv1", name), out, in, 3);
        add_norm(core_x_text("%s.bn1", name), out);
        add_conv(core_x_text("%s.conv2", name), out, out, 3);
        add_norm(core_x_text("%s.bn2", name), out);
        if (in == out)
            continue;
        add_conv(core_x_text("%s.downsample.0", name), out, in, 1);
        add_norm(core_x_text("%s.downsample.1", name), out);
    }
    add("fc.weight", 1000, 512, 0);
    add("fc.bias", 0, 1000, 0);
    save(path);
}

static void save_llama(const char *path)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } parts[] = {{"input_layernorm", 0, WIDTH},
                 {"post_attention_layernorm", 0, WIDTH},
                 {"self_attn.q_proj", WIDTH, WIDTH},
                 {"self_attn.k_proj", WIDTH / 2, WIDTH},
                 {"self_attn.v_proj", WIDTH / 2, WIDTH},
                 {"self_attn.o_proj", WIDTH, WIDTH},
                 {"mlp.gate_proj", 192, WIDTH},
                 {"mlp.up_proj", 192, WIDTH},
                 {"mlp.down_proj", WIDTH, 192}};

    add("model.embed_tokens.weight", WORDS, WIDTH, 0);
    for (int i = 0; i < LAYERS * 9; i++) {
        char name[64];

        snprintf(name, sizeof name, "model.layers.%d.%s.weight", i / 9,
                 parts[i % 9].name);
        add(name, parts[i % 9].rows, parts[i % 9].columns, i % 9 < 2);
    }
    add("model.norm.weight", 0, WIDTH, 1);
    add("lm_head.weight", WORDS, WIDTH, 0);
    for (int i = 0; i < LAYERS; i++) {
        char name[64];

        snprintf(name, sizeof name,
                 "model.layers.%d.self_attn.rotary_emb.inv_freq", i);
        add(name, 0, WIDTH / 4 / 2, 0);
    }
    save(path);
}

int main(int argc, char **argv)
{
    core_scope scope = core_scope_begin();

    (void)argc;
    core_seed(20);
    add("wte.weight", WORDS, WIDTH, 0);
    add("wpe.weight", PLACES, WIDTH, 0);
    for (int i = 0; i < LAYERS; i++) {
        add_part(i, "ln_1", 0, WIDTH);
        add_part(i, "attn.c_attn", WIDTH, 3 * WIDTH);
        add_part(i, "attn.c_proj", WIDTH, WIDTH);
        add_part(i, "ln_2", 0, WIDTH);
        add_part(i, "mlp.c_fc", WIDTH, 4 * WIDTH);
        add_part(i, "mlp.c_proj", 4 * WIDTH, WIDTH);
    }
    add("ln_f.weight", 0, WIDTH, 1);
    add("ln_f.bias", 0, WIDTH, 0);
    save_shards(argv[3]);
    save(argv[1]);
    save_llama(argv[2]);
    save_resnet(argv[4]);
    return core_scope_end(scope) != CORE_OK;
}
END
    compiles "$work/weights.c" &&
        mkdir "$work/shards" && "$work/weights" "$work/gpt2.safetensors" \
        "$work/llama.safetensors" "$work/shards" "$work/resnet18.safetensors"
}

# The tokens that PyTorch computes from the same file.
gpt2_continues() { # device, file
    prints gpt2 "${2-$work/gpt2.safetensors}" "$1" 12 5 17 250 3 -- || return
    test "$(tr '\n' ' ' <"$work/out")" = \
        '116 299 189 246 18 266 280 18 246 30 148 137 '
}

# Likewise, with 4 heads of queries and 2 of keys and values.
llama_continues() {
    prints llama "$work/llama.safetensors" cpu 4 12 5 17 250 3 -- || return
    test "$(tr '\n' ' ' <"$work/out")" = \
        '214 91 40 252 102 227 0 102 266 151 63 215 '
}

# The last layer of the file, of 1000 labels, is not that of the program.
resnet_continues() {
    prints resnet18 cpu 2 "$work/resnet18.safetensors" -- 'step 1' &&
        fails missing resnet18 cpu 1 "$work/gpt2.safetensors" &&
        fails none resnet18 cpu 1 "$work/none"
}

# A program ends with an error that contains the text, not by a signal.
fails() { # text, program and arguments
    text=$1 program=$work/$2
    shift 2
    "$program" "$@" >"$work/out" 2>&1
    if [ $? -ne 1 ] || ! grep -qF -e "$text" "$work/out"; then
        cat "$work/out"
        return 1
    fi
}

gpt2_refuses() {
    many=$(yes 5 | head -n 1500)
    # shellcheck disable=SC2086 # many arguments
    fails none gpt2 "$work/none" cpu 1 5 &&
        fails none gpt2 "$work/gpt2.safetensors" none 1 5 &&
        fails usage: gpt2 none cpu 9223372036854775807 5 &&
        fails usage: gpt2 none cpu -1000 $many
}

llama_refuses() {
    many=$(yes 5 | head -n 2500)
    # shellcheck disable=SC2086 # many arguments
    fails none llama "$work/none" cpu 4 1 5 &&
        fails none llama "$work/llama.safetensors" none 4 1 5 &&
        fails 'no tensor "model.norm.weight"' llama "$work/gpt2.safetensors" \
            cpu 4 1 5 &&
        fails usage: llama none cpu 4 9223372036854775807 5 &&
        fails usage: llama none cpu 4 -1000 $many
}

# Without blank lines and comments.
is_short() {
    for source in "$examples"/*.c; do
        lines=$(sed 's|^ */\* .*||; s|^ \*.*||; /^ *$/d' "$source" | wc -l)
        [ "$lines" -le 150 ] || {
            echo "$source has $lines lines"
            return 1
        }
    done
}

echo 1..20
ok 'each is below 150 lines' is_short
for program in custom_operator gpt2 llama lstm resnet18 voice_activity; do
    ok "$program.c compiles" compiles "$examples/$program.c"
done
ok 'the gradients of custom_operator are right' \
    prints custom_operator -- 'the gradients are right'
ok 'lstm learns waves and continues one' lstm_learns
ok 'resnet18 learns' resnet_learns
ok 'weights of a GPT-2 and of a Llama are written' writes_weights
ok 'gpt2 continues as PyTorch does' gpt2_continues cpu
ok 'also on sim' gpt2_continues sim
ok 'also from shards' gpt2_continues cpu \
    "$work/shards/model.safetensors.index.json"
ok 'llama continues as PyTorch does' llama_continues
ok 'gpt2 reports wrong files, devices and numbers' gpt2_refuses
ok 'llama reports them' llama_refuses
ok 'resnet18 starts from weights of torchvision' resnet_continues
ok 'voice_activity learns, and computes with its file' voice_is_detected
ok 'voice_activity reports wrong devices and files' voice_refuses
