/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plan.h: how a call of torch's operator becomes a call of libcore's. */

#ifndef BINDINGS_PYTORCH_PLAN_H
#define BINDINGS_PYTORCH_PLAN_H

#include "values.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>

namespace libcore_torch
{

/* Where an argument of libcore comes from. */
struct Source {
    enum class From {
        argument, /* torch's argument at position */
        none,     /* libcore's default */
        dtype,    /* the dtype of the tensor at position */
        device    /* the device of the tensor at position */
    } from;
    size_t position;
    Kind kind;
};

/* A call of one operator of libcore with arguments of torch's. */
struct Form {
    core_operator *op;
    std::vector<Source> sources;
    /* Arguments of torch's that libcore's does not have: only their defaults
     * are accepted. */
    std::vector<size_t> ignored;
    uint32_t results;
};

/* What is computed without rounding a number to 16 bits. */
enum class Scaling { none, product, quotient };

struct Plan {
    std::string name; /* of torch's operator */
    size_t arguments;
    /* Positions of the arguments that torch's operator changes. */
    std::vector<size_t> written;
    /* Per result of torch's: the position of the argument that it is, or -1. */
    std::vector<int> results;
    /* Those of them that are tensors for results, or lists of such. */
    std::vector<size_t> outs;
    std::optional<Form> direct;
    /* Of an out variant: the operator that returns the results. */
    std::optional<Form> functional;
    /* The operator that takes the tensor at `number` as a number. */
    std::optional<Form> with_number;
    size_t number;
    Scaling scaling;
};

/* The plan of torch's operator, or NULL: libcore does not have it, or torch
 * makes it of others. */
std::unique_ptr<Plan> plan_of(const c10::OperatorHandle &op);

/* Whether another device may have what this one has not. */
inline bool is_lacking(core_status status)
{
    return status == CORE_ERROR_NO_KERNEL || status == CORE_ERROR_UNSUPPORTED;
}

/* -------------------------------------------------- scaling.cpp -- */

Scaling scaling_of(const c10::FunctionSchema &schema);
/* Replaces the arguments on the stack by the result, if this is a product or a
 * quotient of a tensor of 16 bits and a number that has more. */
bool scale(const Plan &plan, torch::jit::Stack *stack);

} // namespace libcore_torch

#endif
