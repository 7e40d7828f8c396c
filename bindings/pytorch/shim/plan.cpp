/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Finds for each operator of torch the one of libcore that computes it.  Both
 * have ATen's schemas, so arguments are matched by their names. */

#include "plan.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <unordered_map>

namespace libcore_torch
{

/* ------------------------------------------------- libcore's operators -- */

struct Known {
    core_operator *op;
    c10::FunctionSchema schema;
};

using Overloads = std::unordered_map<std::string, std::vector<Known>>;

/* libcore names a dtype by its own name. */
static c10::FunctionSchema schema_of(core_operator *op)
{
    std::string text = core_op_schema(op);
    size_t at = text.find("dtype=i64");

    if (at != std::string::npos)
        text.replace(at, sizeof "dtype=i64" - 1, "dtype=long");
    return torch::jit::parseSchema(text);
}

/* libcore's operators by name without overload. */
static const Overloads &overloads()
{
    static const Overloads all = [] {
        Overloads found;

        for (uint32_t i = 0; core_operator *op = core_op_at(i); i++) {
            c10::FunctionSchema schema = schema_of(op);

            found[schema.name()].push_back({op, schema});
        }
        return found;
    }();

    return all;
}

/* The name without aten:: and overload. */
static std::string unqualified(const c10::FunctionSchema &schema)
{
    return schema.name().substr(sizeof "aten::" - 1);
}

static const std::vector<Known> &overloads_of(const std::string &name)
{
    static const std::vector<Known> none;
    auto found = overloads().find(name);

    return found == overloads().end() ? none : found->second;
}

/* ------------------------------------------------------------ matching -- */

static bool is_written(const c10::Argument &argument)
{
    return argument.alias_info() && argument.alias_info()->isWrite();
}

static int find(const c10::FunctionSchema &schema, const std::string &name)
{
    for (size_t i = 0; i < schema.arguments().size(); i++)
        if (schema.arguments()[i].name() == name)
            return static_cast<int>(i);
    return -1;
}

/* Whether two arguments take the same, up to SymInt and int, and what may be
 * absent. */
static bool same_type(const c10::Argument &a, const c10::Argument &b)
{
    c10::TypePtr left = a.type(), right = b.type();

    if (auto optional = left->cast<c10::OptionalType>())
        left = optional->getElementType();
    if (auto optional = right->cast<c10::OptionalType>())
        right = optional->getElementType();
    return left->repr_str() == right->repr_str();
}

/* How libcore's operator is called with the arguments of torch's, or nothing if
 * an argument of libcore's is missing.  out: the position of the tensor for the
 * result, of which an allocating operator takes dtype and device, or -1.  number:
 * the position of a tensor that is passed as a number, or -1. */
static std::optional<Form> form_of(const Known &known,
                                   const c10::FunctionSchema &torchs, int out,
                                   int number)
{
    Form form = {known.op, {}, {}, 0};

    form.results = static_cast<uint32_t>(known.schema.returns().size());
    for (const c10::Argument &argument : known.schema.arguments()) {
        int position = find(torchs, argument.name());
        Source source = {Source::From::argument, 0, Kind::plain};

        if (position >= 0) {
            const c10::Argument &given = torchs.arguments()[position];

            if (position != number && !same_type(given, argument))
                return std::nullopt;
            source.position = static_cast<size_t>(position);
            source.kind = kind_of(given);
        } else if (out >= 0 && argument.name() == "dtype") {
            source = {Source::From::dtype, static_cast<size_t>(out),
                      Kind::plain};
        } else if (out >= 0 && argument.name() == "device") {
            source = {Source::From::device, static_cast<size_t>(out),
                      Kind::plain};
        } else if (argument.default_value()) {
            source.from = Source::From::none;
        } else {
            return std::nullopt;
        }
        form.sources.push_back(source);
    }
    for (size_t i = 0; i < torchs.arguments().size(); i++)
        if (find(known.schema, torchs.arguments()[i].name()) < 0 &&
            !(out >= 0 && torchs.arguments()[i].is_out()))
            form.ignored.push_back(i);
    return form;
}

/* An argument without default must be among libcore's. */
static bool may_ignore(const Form &form, const c10::FunctionSchema &torchs)
{
    return std::all_of(form.ignored.begin(), form.ignored.end(),
                       [&torchs](size_t i) {
                           return torchs.arguments()[i].default_value() ||
                                  torchs.arguments()[i].type()->kind() ==
                                      c10::TypeKind::OptionalType;
                       });
}

static std::optional<Form> direct_form(const c10::FunctionSchema &torchs)
{
    for (const Known &known : overloads_of(unqualified(torchs)))
        if (known.schema.overload_name() == torchs.overload_name()) {
            auto form = form_of(known, torchs, -1, -1);

            if (form && may_ignore(*form, torchs))
                return form;
        }
    return std::nullopt;
}

static size_t written_count(const c10::FunctionSchema &schema)
{
    return static_cast<size_t>(std::count_if(
        schema.arguments().begin(), schema.arguments().end(), is_written));
}

/* The operator that returns what an out variant writes to its out tensors: the
 * same arguments but those. */
static std::optional<Form> functional_form(const c10::FunctionSchema &torchs,
                                           const Plan &plan)
{
    for (const Known &known : overloads_of(unqualified(torchs))) {
        if (written_count(known.schema) !=
                plan.written.size() - plan.outs.size() ||
            known.schema.returns().size() != plan.outs.size())
            continue;
        auto form = form_of(known, torchs, static_cast<int>(plan.outs[0]), -1);
        if (form && form->ignored.empty())
            return form;
    }
    return std::nullopt;
}

/* The overload that takes a number where torch's takes a tensor. */
static std::optional<Form> number_form(const c10::FunctionSchema &torchs,
                                       size_t number)
{
    for (const Known &known : overloads_of(unqualified(torchs))) {
        int position = find(known.schema, torchs.arguments()[number].name());

        if (position < 0 ||
            written_count(known.schema) != written_count(torchs) ||
            known.schema.arguments()[position].type()->kind() !=
                c10::TypeKind::NumberType)
            continue;
        auto form = form_of(known, torchs, -1, static_cast<int>(number));
        if (form && form->ignored.empty())
            return form;
    }
    return std::nullopt;
}

/* ------------------------------------------------------------ the plan -- */

/* Operators that torch's own functions serve better: they create tensors, copy
 * between devices, or read lengths on the CPU. */
static bool is_left_to_torch(const c10::FunctionSchema &schema)
{
    static const char *const names[] = {
        "aten::copy_",         "aten::_to_copy",
        "aten::resize_",       "aten::resize",
        "aten::set_",          "aten::_copy_from",
        "aten::is_pinned",     "aten::_pin_memory",
        "aten::record_stream", "aten::copy",
        "aten::empty",         "aten::empty_like",
        "aten::clone",         "aten::_pack_padded_sequence",
    };

    for (const char *name : names)
        if (schema.name() == name)
            return true;
    if (find(schema, "device") >= 0)
        return true;
    /* Views. */
    for (const c10::Argument &result : schema.returns())
        if (result.alias_info() && !result.alias_info()->isWrite())
            return true;
    return false;
}

/* A few, such as silu_backward, are composed only where there is no kernel. */
static bool is_made_of_others(const c10::OperatorHandle &op)
{
    return (op.hasKernelForDispatchKey(
                c10::DispatchKey::CompositeImplicitAutograd) &&
            !op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) ||
           op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
           /* It changes the layout of torch's tensor. */
           op.hasTag(at::Tag::inplace_view);
}

/* The position of the argument that is returned, or -1. */
static int argument_of(const c10::Argument &result,
                       const c10::FunctionSchema &schema)
{
    if (!is_written(result))
        return -1;
    for (size_t i = 0; i < schema.arguments().size(); i++)
        if (is_written(schema.arguments()[i]) &&
            schema.arguments()[i].alias_info()->beforeSets() ==
                result.alias_info()->beforeSets())
            return static_cast<int>(i);
    return -1;
}

static void find_written(Plan &plan, const c10::FunctionSchema &schema)
{
    for (size_t i = 0; i < schema.arguments().size(); i++) {
        if (is_written(schema.arguments()[i]))
            plan.written.push_back(i);
        if (schema.arguments()[i].is_out())
            plan.outs.push_back(i);
    }
    for (const c10::Argument &result : schema.returns())
        plan.results.push_back(argument_of(result, schema));
}

static void find_number(Plan &plan, const c10::FunctionSchema &schema)
{
    int position = find(schema, "other");

    if (position < 0)
        return;
    plan.number = static_cast<size_t>(position);
    if (schema.arguments()[plan.number].type()->kind() ==
        c10::TypeKind::TensorType)
        plan.with_number = number_form(schema, plan.number);
}

std::unique_ptr<Plan> plan_of(const c10::OperatorHandle &op)
{
    const c10::FunctionSchema &schema = op.schema();
    auto plan = std::make_unique<Plan>();

    if (is_left_to_torch(schema) || is_made_of_others(op))
        return nullptr;
    plan->name = c10::toString(op.operator_name());
    plan->arguments = schema.arguments().size();
    find_written(*plan, schema);
    plan->direct = direct_form(schema);
    if (!plan->outs.empty())
        plan->functional = functional_form(schema, *plan);
    /* libcore does not resize tensors of torch. */
    if (plan->outs.empty() ? !plan->direct : !plan->functional)
        return nullptr;
    find_number(*plan, schema);
    plan->scaling = scaling_of(schema);
    return plan;
}

} // namespace libcore_torch
