/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Backward operators called by hand, with gradients that do not fit. */

#include "autograd.h"

START_TEST(a_padding_backward_wants_the_forwards_sizes)
{
    core_tensor *grad = MATRIX(1, 3, 1, 2, 3);
    core_tensor *self = MATRIX(1, 3, 1, 2, 3);
    core_tensor *out = NULL;

    FAILS(
        core_reflection_pad1d_backward(grad, self, (int64_t[]){2, 2}, 2, &out),
        CORE_ERROR_SHAPE, "[1, 3]", "[1, 7]");
    FAILS(
        core_replication_pad1d_backward(grad, self, (int64_t[]){2, 2}, 2, &out),
        CORE_ERROR_SHAPE, "[1, 3]", "[1, 7]");
    ck_assert_ptr_null(out);
}
END_TEST

SUITE("ops backward", a_padding_backward_wants_the_forwards_sizes)
