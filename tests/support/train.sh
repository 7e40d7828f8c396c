# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# train.sh: sourced by tests that train with core-train: small data sets, and
# values of the result that --json prints.  The script has created $work, a
# temporary folder.
train=$LIBCORE_BUILD/core-train

# number_bytes NUMBER: prints a number below 65536 as IDX files have it.
number_bytes() {
    printf '\000\000'
    # shellcheck disable=SC2059 # the format has the escapes
    printf "$(printf '\\%03o\\%03o' $(($1 / 256)) $(($1 % 256)))"
}

idx_header() { # count, rows
    printf '\000\000\010\003'
    number_bytes "$1"
    number_bytes "$2"
    number_bytes 28
}

# idx_images COUNT ROWS FILE: writes images whose pixels are arbitrary but differ.
idx_images() {
    {
        idx_header "$1" "$2"
        seq 100000 200000 | head -c $(($1 * $2 * 28))
    } >"$3"
}

# idx_bands COUNT ROWS FILE: writes images with a bright band whose position is the
# label.
idx_bands() {
    {
        idx_header "$1" "$2"
        awk -v n="$1" -v rows="$2" 'BEGIN {
            for (i = 0; i < n; i++)
                for (r = 0; r < rows; r++)
                    for (c = 0; c < 28; c++)
                        printf int(r / 3) == i * 7 % 10 ? "~" : " " }'
    } >"$3"
}

# idx_labels COUNT FILE
idx_labels() {
    {
        printf '\000\000\010\001'
        number_bytes "$1"
        # shellcheck disable=SC2059
        printf "$(awk -v n="$1" 'BEGIN {
            for (i = 0; i < n; i++) printf "\\%03o", i * 7 % 10 }')"
    } >"$2"
}

# data_set IMAGES FOLDER TRAINING TEST: writes so many images and labels to train
# and to test with; IMAGES is idx_images or idx_bands.
data_set() {
    mkdir -p "$2" || return
    for half in "train:$3" "t10k:$4"; do
        "$1" "${half#*:}" 28 "$2/${half%:*}-images-idx3-ubyte"
        idx_labels "${half#*:}" "$2/${half%:*}-labels-idx1-ubyte"
    done
}

# run ARGUMENT…: trains; stores the last line of the output in $last.
run() {
    "$train" --json "$@" >"$work/out" 2>"$work/err" || {
        cat "$work/err"
        return 1
    }
    last=$(tail -n 1 "$work/out")
}

# of NAME: prints a value of $last.
of() {
    printf '%s\n' "$last" | sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p"
}

# same A B: two equal, non-empty texts.
same() {
    echo "$1 $2"
    [ -n "$1" ] && [ "$1" = "$2" ]
}
