/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recurrent.h: the kinds of recurrent layers, the argument `mode` of
 * _recurrent_layer. */

#ifndef CORE_OPS_RECURRENT_H
#define CORE_OPS_RECURRENT_H

enum {
    CORE__RECURRENT_RELU,
    CORE__RECURRENT_TANH,
    CORE__RECURRENT_LSTM,
    CORE__RECURRENT_GRU
};

#endif
