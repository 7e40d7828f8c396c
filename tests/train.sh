#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-train on a small generated data set: it resumes bit for bit, gives the
# same bits with any number of threads and devices, and refuses wrong input.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
data=$work/data
places=$work/places
mkdir "$data" "$places"

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
# shellcheck source=tests/support/train.sh
. "$LIBCORE_SOURCE/tests/support/train.sh"

# Trains on the small set; stores the last line of the output in $last.
small() {
    run --data "$data" --batch 64 "$@"
}

# weights ARGUMENT…: prints a hash of all bits of the parameters.
weights() {
    small "$@" || return
    of weights
}

# refuses STATUS PATTERN ARGUMENT…: checks the exit status, the message, and
# that no file was created.
refuses() {
    status=$1 pattern=$2
    shift 2
    find "$places" >"$work/before"
    "$train" --data "$data" --batch 64 --epochs 1 "$@" >"$work/out" \
        2>"$work/err"
    got=$?
    cat "$work/err"
    find "$places" | diff "$work/before" - || return
    [ $got = "$status" ] && grep -E -q -e "$pattern" "$work/err"
}

# ----------------------------------------------------------------- training

shows_result() {
    small --epochs 2 --seed 1 || return
    cat "$work/out"
    [ "$(wc -l <"$work/out")" = 3 ] &&
        printf '%s\n' "$last" |
        grep -E '^\{.*"test_accuracy": [0-9.]+[,}].*\}$'
}

plain_lines() {
    "$train" --data "$data" --epochs 2 >"$work/out" || return
    cat "$work/out"
    ! grep "$(printf '\r')" "$work/out" &&
        grep -E '^epoch +2/2 +loss [0-9.]+ +train +[0-9.]+ %' "$work/out"
}

# on_a_terminal COMMAND: splits its terminal output at each redrawn line.
on_a_terminal() {
    script -qec "$1" /dev/null </dev/null >"$work/terminal" || return
    tr '\r' '\n' <"$work/terminal" | sed "s/$escape\[K/{K}/g" >"$work/out"
    cat "$work/out"
}

# The first batch always draws the bar; the final lines equal those printed
# without a terminal.
progress_bar() {
    escape=$(printf '\033')
    run="'$train' --data '$data' --batch 64 --epochs 2"
    on_a_terminal "stty cols 80; $run" || return
    bar='[0-9]+ %  [1-9][0-9]* images/s  [0-9:]+( s)? left\{K\}$'
    grep -E "^epoch +1/2 \[=*> *\] +$bar" "$work/out" &&
        grep -E '^\{K\}epoch +1/2  loss [0-9.]+ ' "$work/out" &&
        grep '^test accuracy ' "$work/out" &&
        on_a_terminal "stty cols 50; $run" &&
        grep -E "^epoch +1/2  +$bar" "$work/out"
}

learns() {
    small --epochs 30 --lr 0.003 --lr-decay 1 || return
    printf '%s\n' "$last" | sed 's/.*"train_loss": \([0-9.e-]*\).*/\1/' |
        awk '{ print; exit !($1 < 1.5) }'
}

packed_files() {
    mkdir -p "$work/packed" &&
        cp "$data"/* "$work/packed" && gzip -f "$work/packed"/* || return
    plain=$(weights --epochs 1) || return
    same "$plain" "$(weights --epochs 1 --data "$work/packed")"
}

any_threads() {
    one=$(weights --epochs 3 --threads 1) || return
    for threads in 2 3 8; do
        same "$one" "$(weights --epochs 3 --threads $threads)" || return
    done
}

# On simulated devices, which work asynchronously and report unordered accesses.
simulated() {
    LIBCORE_SIM_CHECK=1 LIBCORE_SIM_DELAY_US=20 weights "$@"
}

# as_on_one ARGUMENT…: the same bits on the CPU, on another device, and split
# over several; with dropout too, since all devices draw the same numbers.
as_on_one() {
    one=$(weights --device cpu "$@") || return
    same "$one" "$(simulated --device sim:0 "$@")" || return
    for devices in sim:0,sim:1 sim:1,cpu cpu,sim:0 sim:0,cpu,sim:1; do
        same "$one" "$(simulated --devices $devices "$@")" || return
    done
}

text_on_one() {
    seq 1000 2000 >"$work/text"
    as_on_one --model gpt --text "$work/text" --steps 4 --context 16 \
        --layers 3 --heads 2 --width 32 --dropout 0.1 --sample 20 --batch 8
}

split_goes_on() {
    straight=$(weights --epochs 4) || return
    weights --epochs 2 --devices sim:0,sim:1 --save "$work/split" || return
    same "$straight" \
        "$(weights --epochs 4 --devices cpu,sim:0 --resume "$work/split")"
}

# Batches that threads read ahead are those that are read when they are needed,
# also after a checkpoint in the middle of an epoch.
any_loaders() { # ARGUMENT…
    one=$(weights --loaders 0 "$@") || return
    for loaders in 1 3; do
        same "$one" "$(weights --loaders $loaders "$@")" || return
    done
}

loaders_go_on() {
    straight=$(weights --loaders 0 --epochs 2) || return
    weights --loaders 2 --epochs 2 --steps 3 --save "$work/ahead" || return
    same "$straight" \
        "$(weights --loaders 1 --epochs 2 --resume "$work/ahead")"
}

another_seed() {
    one=$(weights --epochs 1 --seed 1) || return
    two=$(weights --epochs 1 --seed 2) || return
    ! same "$one" "$two"
}

# goes_on ARGUMENT…: 2 epochs and 2 more equal 4.
goes_on() {
    straight=$(weights --epochs 4 "$@") || return
    weights --epochs 2 --save "$work/half" "$@" || return
    same "$straight" "$(weights --epochs 4 --resume "$work/half")"
}

after_interrupt() {
    rm -f "$work/out" "$work/err"
    "$train" --data "$data" --batch 64 --epochs 100000 --json \
        --save "$work/stopped" >"$work/out" 2>"$work/err" &
    pid=$!
    tries=0
    until [ -s "$work/out" ] || [ $tries = 3000 ]; do
        sleep 0.1
        kill -0 $pid || return
        tries=$((tries + 1))
    done
    kill -"$1" $pid
    wait $pid
    got=$?
    cat "$work/err"
    [ $got = "$2" ] || return
    epoch=$(sed -n 's/.*interrupted in epoch \([0-9]*\) .*/\1/p' "$work/err")
    [ -n "$epoch" ] || return
    straight=$(weights --epochs "$epoch") || return
    same "$straight" \
        "$(weights --epochs "$epoch" --resume "$work/stopped")"
}

complete_already() {
    weights --epochs 1 --save "$work/done" || return
    small --epochs 1 --resume "$work/done" || return
    printf '%s\n' "$last" | grep '"test_accuracy"'
}

# -------------------------------------------------------- the other models

# text ARGUMENT…: trains a small transformer; stores the last line of the output
# in $last and all lines in out.
text() {
    [ -f "$work/text" ] || seq 1000 2000 >"$work/text"
    run --model gpt --text "$work/text" --context 16 --layers 2 --heads 2 \
        --width 32 --batch 16 --warmup 5 --sample 20 "$@" || return
    text_weights=$(of weights)
}

convolutions() {
    data_set idx_bands "$work/bands" 300 100 || return
    small --model cnn --epochs 6 --lr 0.003 --warmup 5 --batch 32 \
        --data "$work/bands" || return
    cat "$work/out"
    # Two convolutions, fewer than 100,000 parameters, and a low loss.
    awk -v n="$(of parameters)" -v loss="$(of train_loss)" \
        'BEGIN { exit !(n > 50000 && n < 100000 && loss < 1) }'
}

cnn_threads() {
    one=$(weights --model cnn --steps 6 --threads 1) || return
    for threads in 2 5; do
        same "$one" "$(weights --model cnn --steps 6 --threads $threads)" ||
            return
    done
}

writes_text() {
    text --epochs 4 --lr 0.01 --seed 3 --log 10 || return
    cat "$work/out"
    # Less than the entropy of ten independent digits and an end of line.
    awk -v loss="$(of validation_loss)" \
        'BEGIN { exit !(loss < 2.3) }' || return
    printf '%s\n' "$last" |
        grep -E '"sample": "([0-9]|\\n){20}"' || return
    grep -c '^{"step": [0-9]*0, "loss": [0-9.]*, "lr": ' "$work/out"
}

# With dropout: the state of the generator is saved too.
text_goes_on() {
    text --epochs 4 || return
    straight=$text_weights
    text --epochs 4 --steps 9 --save "$work/half" || return
    text --epochs 4 --resume "$work/half" || return
    same "$straight" "$text_weights"
}

text_threads() {
    text --steps 6 --threads 1 || return
    one=$text_weights
    text --steps 6 --threads 3 || return
    same "$one" "$text_weights"
}

# Each of these options changes the weights.
every_option_counts() {
    text --steps 8 || return
    usual=$text_weights
    for options in '--clip 0.01' '--dropout 0' '--weight-decay 0.5' \
        '--schedule decay' '--warmup 2' '--lr 0.002' '--seed 1'; do
        # shellcheck disable=SC2086 # splits into words
        text --steps 8 $options || return
        ! same "$usual" "$text_weights" || return
    done
}

bad_text() {
    refuses 2 'requires --text FILE' --model gpt || return
    refuses 2 'require --model gpt' --text "$work/text" || return
    refuses 2 'require --model gpt' --width 8 --model cnn || return
    refuses 2 '--dropout requires' --dropout 0.5 || return
    refuses 2 'dropout 1: must be a number below 1' --model cnn \
        --dropout 1 || return
    refuses 2 'schedule none: accepts decay and cosine' \
        --schedule none || return
    refuses 2 'width 10 is not divisible by --heads 4' --model gpt \
        --text "$work/text" --width 10 || return
    refuses 1 'cannot read .*/none' --model gpt --text "$work/none" || return
    printf 'short' >"$work/short"
    refuses 1 'short has 5 characters; .* 650 are required' --model gpt \
        --text "$work/short" || return
    text --steps 1 --save "$work/half" || return
    seq 3000 4000 >"$work/other"
    refuses 1 'a different text' --resume "$work/half" --batch 16 \
        --text "$work/other"
}

# ---------------------------------------------------------------- bad input

# damaged NAME PATTERN: replaces one of the four files by work/bad.
damaged() {
    refuses 1 "$2" "--$1" "$work/bad"
}

cut() { # FILE BYTES
    head -c "$2" "$1" >"$work/bad"
}

extra() {
    { cat "$1" && printf x; } >"$work/bad"
}

bad_images() {
    images=$data/train-images-idx3-ubyte
    cut "$images" 100000 && damaged train-images 'bad is truncated' || return
    cut "$images" 10 && damaged train-images 'bad is truncated' || return
    : >"$work/bad" && damaged train-images 'bad is truncated' || return
    extra "$images" && damaged train-images 'more data than' || return
    cp "$data/train-labels-idx1-ubyte" "$work/bad"
    damaged train-images 'begins with 00 00 08 01, not 00 00 08 03' || return
    idx_images 300 27 "$work/bad"
    damaged train-images 'images of 27 x 28, not 28 x 28' || return
    idx_images 299 28 "$work/bad"
    damaged train-images '299 images, but .* has 300 labels' || return
    idx_images 0 28 "$work/bad"
    damaged train-images 'has 0 images in its header'
}

bad_labels() {
    { head -c 307 "$data/train-labels-idx1-ubyte" && printf '\012'; } \
        >"$work/bad"
    damaged train-labels 'label 299 is 10, not 0 to 9' || return
    cut "$data/t10k-labels-idx1-ubyte" 20
    damaged test-labels 'bad is truncated'
}

bad_packed() {
    packed=$work/packed/train-images-idx3-ubyte.gz
    size=$(wc -c <"$packed")
    cut "$packed" $((size / 2))
    damaged train-images 'bad is (truncated|damaged)' || return
    cut "$packed" $((size - 4))
    damaged train-images 'bad is (truncated|damaged)' || return
    # Without checksum and length.
    cut "$packed" $((size - 8))
    damaged train-images 'bad is truncated' || return
    extra "$packed"
    damaged train-images 'bad is (truncated|damaged)' || return
    { cat "$packed" && printf 'not packed at all'; } >"$work/bad"
    damaged train-images 'bad is damaged' || return
    {
        head -c $((size / 2)) "$packed"
        printf 'xxxxxxxx'
        tail -c +$((size / 2 + 9)) "$packed"
    } >"$work/bad"
    damaged train-images 'bad (is damaged|has more data)'
}

bad_checkpoint() {
    weights --epochs 1 --save "$work/good" || return
    refuses 1 'cannot read .*/none' --resume "$work/none" || return
    cut "$work/good" 200000
    refuses 1 'bad: .*truncated' --resume "$work/bad" || return
    extra "$work/good"
    refuses 1 'bad: 1 bytes of data belong' --resume "$work/bad" || return
    refuses 1 'not a safetensors file' \
        --resume "$data/t10k-images-idx3-ubyte" || return
    printf '\002\000\000\000\000\000\000\000{}' >"$work/bad"
    refuses 1 'not a checkpoint of core-train' --resume "$work/bad"
}

other_checkpoint() {
    weights --epochs 1 --save "$work/good" || return
    refuses 1 'optimizer adam and cannot be resumed with sgd' \
        --resume "$work/good" --optimizer sgd || return
    "$train" --data "$data" --resume "$work/good" --batch 32 2>"$work/err"
    [ $? = 1 ] && grep 'batch 64 and cannot be resumed with 32' "$work/err" ||
        return
    refuses 1 'seed 0 and cannot be resumed with 3' --resume "$work/good" \
        --seed 3 || return
    refuses 1 'with 300 training images, but the data have 200' \
        --resume "$work/good" --limit 200 || return
    # Weights of other sizes under the same names.
    sed 's/"shape":\[256,784\]/"shape":[784,256]/' "$work/good" >"$work/bad"
    refuses 1 '\[784, 256\], but the destination is \[256, 784\]' --resume "$work/bad"
}

bad_output() {
    refuses 1 'cannot write .*/none/file' --save "$places/none/file" ||
        return
    refuses 1 'it is a folder' --save "$places" || return
    refuses 1 'not a regular file' --save /dev/null || return
    # The output path is checked first.
    refuses 1 'cannot write' --save "$places/none/file" --data /nowhere
}

# All links of the chain stay, and their target becomes the checkpoint.
through_a_link() {
    mkdir "$work/links" && ln -s second "$work/links/first" &&
        ln -s "$work/links/file" "$work/links/second" || return
    straight=$(weights --epochs 1 --save "$work/links/first") || return
    [ -h "$work/links/first" ] && [ -h "$work/links/second" ] &&
        [ -f "$work/links/file" ] && [ ! -h "$work/links/file" ] || return
    [ "$(find "$work/links" | wc -l)" = 4 ] || return
    same "$straight" "$(weights --epochs 1 --resume "$work/links/first")" ||
        return
    ln -s "$work/none/file" "$places/lost"
    refuses 1 'cannot write .*/none/file: No such file' --save "$places/lost"
    got=$?
    rm "$places/lost"
    return $got
}

# A folder that not even root may write.
read_only_place() {
    mkdir "$work/locked" && chmod 555 "$work/locked" || return
    closed=$work/locked
    [ ! -w "$closed" ] || closed=/proc
    refuses 1 "cannot write $closed/file: " --save "$closed/file"
}

# Simulates a full disk by a limit of 100 kB per file.  An earlier checkpoint
# stays intact.
full_disk() {
    weights --epochs 1 --save "$places/kept" || return
    cp "$places/kept" "$work/kept" || return
    (ulimit -f 200 && refuses 1 "cannot write $places/new: File too large" \
        --save "$places/new") || return
    (ulimit -f 200 && refuses 1 "cannot write $places/kept: File too large" \
        --save "$places/kept" --seed 3) || return
    cmp "$places/kept" "$work/kept" && rm "$places/kept"
}

full() {
    [ -c /dev/full ] || return 0
    for word in --help --version; do
        "$train" $word >/dev/full 2>"$work/err"
        [ $? = 1 ] && grep 'cannot write standard output' "$work/err" ||
            return
    done
    "$train" --data "$data" --epochs 1 --json >/dev/full 2>"$work/err"
    [ $? = 1 ] && grep 'cannot write standard output' "$work/err"
}

# However training ends, an earlier checkpoint stays intact.
diverges() {
    refuses 1 'diverged in epoch 1: .*try a smaller --lr' \
        --optimizer sgd --lr 1e30 --save "$places/file" || return
    weights --epochs 1 --save "$places/file" || return
    cp "$places/file" "$work/kept"
    for how in '' '--steps 3' '--steps 1 --lr 1e39' '--log 1' \
        '--optimizer adam --lr 1e38 --steps 2'; do
        # shellcheck disable=SC2086 # splits into words
        refuses 1 'diverged in epoch 1: .*file was not changed' \
            --optimizer sgd --lr 1e30 --save "$places/file" $how || return
        cmp "$places/file" "$work/kept" || return
    done
    # Detected long before the end of the epoch.
    refuses 1 'diverged in epoch 1' --optimizer sgd --lr 1e30 --batch 1 \
        --json --log 2 || return
    cat "$work/out"
    [ "$(wc -l <"$work/out")" -le 2 ] || return
    cp "$work/kept" "$places/file"
    refuses 1 'diverged in epoch 2' --resume "$places/file" --epochs 2 \
        --lr 1e38 --save "$places/file" || return
    cmp "$places/file" "$work/kept" && rm "$places/file"
}

# The trace fills the pipe and blocks training: the interrupt arrives after the
# weights became NaN and long before training checks them.
diverged_and_interrupted() {
    weights --epochs 1 --batch 1 --steps 2 --save "$places/file" || return
    cp "$places/file" "$work/kept" && mkfifo "$work/pipe" || return
    LIBCORE_INTERPOSERS=trace "$train" --data "$data" --batch 1 --optimizer sgd \
        --lr 1e30 --save "$places/file" >"$work/out" 2>"$work/pipe" &
    pid=$!
    {
        for line in $(seq 400); do
            read -r line || break
        done
        echo "$line"
        kill -INT $pid
        grep -v ' trace: ' >"$work/err"
    } <"$work/pipe"
    wait $pid
    got=$?
    rm "$work/pipe"
    cat "$work/err"
    [ $got = 1 ] && grep 'interrupted; training diverged' "$work/err" &&
        cmp "$places/file" "$work/kept" && rm "$places/file"
}

# An untrusted checkpoint may contain anything.
not_a_number() {
    weights --epochs 1 --save "$work/good" || return
    cp "$work/good" "$work/bad"
    printf '\000\000\300\177' |
        dd of="$work/bad" bs=4 seek=100000 conv=notrunc || return
    refuses 1 'bad cannot be used: tensor ".*" has an infinite' \
        --resume "$work/bad" --epochs 2 --save "$places/file"
}

# Options are checked against those of the checkpoint.
resumed_options() {
    weights --epochs 1 --save "$work/good" || return
    refuses 2 '--lr 0: must be a number above 0' --resume "$work/good" --lr 0 || return
    refuses 2 '--epochs -1: ' --resume "$work/good" --epochs -1 || return
    refuses 1 'momentum requires --optimizer sgd' --resume "$work/good" \
        --momentum 0.5 || return
    refuses 1 'require --model gpt' --resume "$work/good" \
        --text "$work/good" || return
    refuses 1 '--dropout requires' --resume "$work/good" --dropout 0.5 ||
        return
    refuses 1 'path is NULL or empty' --resume '' || return
    refuses 1 'cannot write a file: the path is empty' --save '' || return
    text --steps 1 --save "$work/half" || return
    refuses 1 'requires --text FILE' --resume "$work/half" --batch 16
}

shapes_only() {
    LIBCORE_DEVICE=meta "$train" --data "$data" >"$work/out" 2>"$work/err"
    [ $? = 1 ] && [ ! -s "$work/out" ] &&
        grep 'LIBCORE_DEVICE is "meta", which has shapes' "$work/err"
}

wrong_usage() {
    refuses 2 'unknown option --colour' --colour || return
    refuses 2 'unknown option -x' -x || return
    refuses 2 'unexpected argument "more"' more || return
    refuses 2 '--epochs needs a value' --epochs || return
    refuses 2 '--epochs none: must be an integer from 1' --epochs none ||
        return
    refuses 2 '--epochs 0: ' --epochs 0 || return
    refuses 2 '--batch 1x: ' --batch 1x || return
    refuses 2 '--threads 0: must be an integer from 1 to 1024' --threads 0 ||
        return
    refuses 2 '--threads 1025: ' --threads 1025 || return
    refuses 2 '--loaders 65: ' --loaders 65 || return
    refuses 2 '--device meta: ' --device meta || return
    refuses 2 'names a device twice' --device cpu --devices sim,cpu || return
    refuses 2 '--device cpu,cpu: must be one device' --device cpu,cpu || return
    refuses 2 '--devices cpu,meta: ' --devices cpu,meta || return
    refuses 2 '--lr nan: must be a number above 0' --lr nan || return
    refuses 2 '--lr -1: ' --lr -1 || return
    refuses 2 '--seed -1: ' --seed -1 || return
    refuses 2 'optimizer lion: accepts adam, adamw and sgd' \
        --optimizer lion || return
    refuses 2 'model vit: accepts mlp, cnn and gpt' --model vit || return
    refuses 2 'requires --optimizer sgd' --momentum 0.5 || return
    refuses 2 '--momentum 1: must be a number below 1' --optimizer sgd --momentum 1
}

# Without a wait the device would still use freed memory.
wrong_setting() (
    LIBCORE_BLOCKING=maybe
    export LIBCORE_BLOCKING
    refuses 1 'LIBCORE_BLOCKING is "maybe"' --device sim || return
    LIBCORE_BLOCKING=
    LIBCORE_FALLBACK=abacus
    export LIBCORE_FALLBACK
    refuses 1 'LIBCORE_FALLBACK contains "abacus", which is not an operator'
)

helps() {
    "$train" --help | grep -e '--resume FILE' &&
        "$train" --version | grep '^core-train [0-9]'
}

# The accuracy that the larger model must reach on the real data set.
learns_to_see() {
    run --model cnn --epochs 20 --seed 1 || return
    printf '%s\n' "$last"
    awk -v accuracy="$(of test_accuracy)" -v n="$(of parameters)" \
        'BEGIN { exit !(accuracy >= 0.915 && n < 100000) }'
}

data_set idx_images "$data" 300 100
if [ -n "${LIBCORE_TEST_LONG-}" ]; then
    echo 1..52
else
    echo 1..51
fi
ok 'help and version are printed' helps
ok 'the last line of the output is the result' shows_result
ok 'output without a terminal has plain lines' plain_lines
if command -v script >/dev/null 2>&1; then
    ok 'a terminal shows a bar with rate and remaining time' progress_bar
else
    number=$((number + 1))
    echo "ok $number - a terminal shows a bar # SKIP script(1) is missing"
fi
ok 'the loss falls' learns
ok 'gzip files are read' packed_files
ok 'the number of threads changes no bit' any_threads
ok 'the number of loaders changes no bit' any_loaders --epochs 2
ok 'nor do batches that are read ahead for a device' \
    any_loaders --epochs 1 --device sim
ok 'loaders resume in an epoch bit for bit' loaders_go_on
ok 'one and several devices of any kind give the same bits' as_on_one --epochs 2
ok 'a convolutional network gives the same bits on all devices' \
    as_on_one --model cnn --dropout 0.3 --steps 2 --limit 96 --batch 32
ok 'a transformer gives the same bits on all devices' text_on_one
ok 'a split model resumes with another split' split_goes_on
ok 'another seed gives other weights' another_seed
ok 'adam resumes bit for bit' goes_on
ok 'adamw resumes bit for bit' goes_on --optimizer adamw \
    --weight-decay 0.01
ok 'sgd resumes bit for bit' goes_on --optimizer sgd
ok 'sgd without momentum resumes bit for bit' goes_on --optimizer sgd \
    --momentum 0
ok 'a convolutional network learns' convolutions
ok 'a convolutional network resumes bit for bit' goes_on --model cnn
ok 'a convolutional network gives the same bits with any threads' cnn_threads
ok 'a transformer learns and generates text' writes_text
ok 'a transformer with dropout resumes bit for bit' text_goes_on
ok 'a transformer gives the same bits with any threads' text_threads
ok 'clipping, schedule, decay and dropout change the weights' \
    every_option_counts
ok 'options of text models are checked' bad_text
ok 'SIGINT saves within an epoch' after_interrupt INT 130
ok 'SIGTERM saves within an epoch' after_interrupt TERM 143
ok 'a finished checkpoint is only evaluated' complete_already
ok 'wrong usage is refused' wrong_usage
ok 'an invalid setting is refused' wrong_setting
ok 'an unknown device is refused' refuses 1 'abacus' --device abacus
ok 'an empty device name is refused' refuses 1 '""' --devices cpu,,cpu
ok 'a missing data set names the package' refuses 1 \
    'no train-images-idx3-ubyte.gz in .*/places.*dataset-fashion-mnist' \
    --data "$places"
ok 'a missing file is named' refuses 1 'cannot read .*/none' \
    --train-images "$work/none"
ok 'damaged images are refused' bad_images
ok 'damaged labels are refused' bad_labels
ok 'damaged gzip files are refused' bad_packed
ok 'a damaged checkpoint is refused' bad_checkpoint
ok 'a checkpoint of another run is refused' other_checkpoint
ok 'an output path that cannot be written is refused first' bad_output
ok 'saving follows symbolic links, dangling ones too' through_a_link
ok 'a read-only folder is refused' read_only_place
ok 'a full disk leaves no partial file' full_disk
ok 'output that cannot be written is an error' full
ok 'divergence ends training and saves nothing' diverges
ok 'divergence is reported after an interrupt' diverged_and_interrupted
ok 'a checkpoint with NaN is refused' not_a_number
ok 'options are checked against the checkpoint' resumed_options
ok 'meta as default device is refused at once' shapes_only
images=/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
name='a convolutional network reaches 91.5 % within 20 epochs'
if [ -z "${LIBCORE_TEST_LONG-}" ]; then
    :
elif [ -r "$images" ]; then
    ok "$name" learns_to_see
else
    number=$((number + 1))
    echo "ok $number - $name # SKIP Fashion-MNIST is missing"
fi
