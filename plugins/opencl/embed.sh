#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# embed.sh FILE.cl... : writes a header with each file as a string,
# opencl_<name>_cl.
set -e
echo '/* Made by embed.sh. */'
for file in "$@"; do
    name=$(basename "$file" .cl)
    echo "static const char opencl_${name}_cl[]"
    echo '    __attribute__((unused)) ='
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/' "$file"
    echo '    ;'
done
