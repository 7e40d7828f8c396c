# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Element-wise operators, written once for all backends.

table.py lists them.  Each backend generates its kernels from that list with
its own script: backends/cpu/gen_kernels.py, backends/gpu/gen_kernels.py and
plugins/opencl/gen_operations.py.

An expression is C on the inputs a, b and c, of the type T that it is expanded
for, and on the parameters p0 to p3, of type T too.  An @ stands for the type's
suffix, so that exp@(a) becomes exp_f32(a); a backend that overloads functions
drops it.  Inputs and output have one type unless the operator says otherwise.

Expressions are given by class of types:

    F           f64 and f32; f16 and bf16 compute in f32
    f64, f32    one of these alone
    I           integers
    B           bool
    W           anything, by size: the operator moves elements

Where an operator has several variants of an expression, `choice` says what
chooses:

    ALPHA       0: alpha is 1; 1: p0 is alpha
    ROUNDING    0: none; 1: "trunc"; 2: "floor"; 3, 4: "trunc" of f16 and
                bf16, whose quotients are rounded to the dtype first
    POWER       the exponent is a number: 1: 2; 2: 3; 3: 0.5; 4: -1; 5: -2;
                6: -0.5; 0: any other, or a tensor
    DTYPE       0: f32; 1: f16; 2: bf16
    TANH        0: none; 1: "tanh"
    CLAMP       0: both bounds; 1: the lower one; 2: the upper one

The choices BITS, FINITE and BOUND have one variant: `fill` is a number as the
bits of an element; p1 and p2 are limited to finite numbers of the dtype; p0 is
rounded to the dtype."""
