#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# From main() to the first result at most 5 ms.  Load on the machine can only slow
# a start down, so the fastest of many starts is measured.
first=$LIBCORE_BUILD/tests/first_result
limit=5000 # microseconds
best=

if [ ! -x "$first" ]; then
    echo '1..0 # SKIP tests/first_result is not built'
    exit 0
fi
echo 1..1
for start in $(seq 200); do
    line=$("$first" 2>&1)
    case $? in
    0) ;;
    77)
        echo 'ok 1 - the first result # SKIP built with a sanitizer'
        exit 0
        ;;
    *)
        echo "not ok 1 - the first result: $line"
        exit 0
        ;;
    esac
    passed=${line%% *} computed=${line##* }
    if [ -z "$best" ] || [ "$passed" -lt "$best" ]; then
        best=$passed
    fi
    if [ "$start" -ge 20 ] && [ "$best" -le $limit ]; then
        break
    fi
done
echo "# $best us passed at best in $start starts; the last computed $computed us"
if [ "$best" -le $limit ]; then
    echo 'ok 1 - the first result takes at most 5 ms'
else
    echo 'not ok 1 - the first result takes at most 5 ms'
fi
