/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The boxed function: every operator that libcore has runs through it. */

#include "activities.h"
#include "fallback.h"
#include "plan.h"
#include "same_device.h"

#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace libcore_torch
{

using Arguments = c10::ArrayRef<c10::IValue>;

/* The results of a call, owned until they are taken. */
struct Results {
    explicit Results(uint32_t count) : values(count) {}

    ~Results()
    {
        for (core_value &value : values)
            core_value_release(&value);
    }

    Results(const Results &) = delete;
    Results &operator=(const Results &) = delete;

    c10::SmallVector<core_value, 4> values;
};

/* ---------------------------------------------------------------- call -- */

static void fill(Values &values, const Form &form, Arguments arguments)
{
    for (const Source &source : form.sources) {
        const c10::IValue &value = arguments[source.position];

        switch (source.from) {
        case Source::From::argument:
            values.add(value, source.kind);
            break;
        case Source::From::none:
            values.add_none();
            break;
        case Source::From::dtype:
            values.add_dtype(value.toTensor().scalar_type());
            break;
        case Source::From::device:
            values.add_device(device_at(value.toTensor().device().index()));
            break;
        }
    }
}

/* Calls libcore's operator in inference mode: autograd is torch's. */
static core_status invoke(const Form &form, const Values &values,
                          Results &results)
{
    Activity activity(form.op, values.data(), values.size());
    uint64_t modes = core_inference_begin();
    core_status status = core_op_call(
        form.op, values.data(), values.size(), results.values.data(),
        static_cast<uint32_t>(results.values.size()));

    core_inference_end(modes);
    return status;
}

static bool is_default(const c10::IValue &value, const c10::Argument &argument)
{
    return value.isNone() ||
           (argument.default_value() && value == *argument.default_value());
}

static bool accepts(const Form &form, const c10::FunctionSchema &schema,
                    Arguments arguments)
{
    for (size_t position : form.ignored)
        if (!is_default(arguments[position], schema.arguments()[position]))
            return false;
    return true;
}

/* ------------------------------------------------------------- results -- */

static std::vector<at::Tensor> list_of(const core_value &value)
{
    std::vector<at::Tensor> list;

    for (uint32_t i = 0; i < value.count; i++)
        list.push_back(export_tensor(core_tensor_retain(value.u.tensors[i])));
    return list;
}

static c10::IValue take(core_value &value)
{
    core_value taken = value;

    switch (taken.tag) {
    case CORE_VALUE_NONE:
        return at::Tensor();
    case CORE_VALUE_TENSOR:
        value = core_value{};
        return export_tensor(taken.u.tensor);
    case CORE_VALUE_TENSOR_LIST:
        return list_of(taken);
    case CORE_VALUE_INT:
        return taken.u.i;
    case CORE_VALUE_FLOAT:
        return taken.u.f;
    case CORE_VALUE_BOOL:
        return taken.u.i != 0;
    default:
        TORCH_CHECK(false, "libcore: a result has the tag ", taken.tag);
    }
}

/* Replaces the arguments on the stack by the results. */
static void finish(const Plan &plan, torch::jit::Stack *stack, Results &results)
{
    c10::SmallVector<c10::IValue, 4> returned;
    Arguments arguments = torch::jit::last(*stack, plan.arguments);

    for (size_t i = 0; i < plan.results.size(); i++)
        if (plan.results[i] >= 0)
            returned.push_back(arguments[static_cast<size_t>(plan.results[i])]);
        else
            returned.push_back(take(results.values[i]));
    torch::jit::drop(*stack, plan.arguments);
    for (c10::IValue &value : returned)
        stack->push_back(std::move(value));
}

/* --------------------------------------------------------- out variants -- */

static void write_tensor(const at::Tensor &out, const at::Tensor &result)
{
    TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()),
                "result type ", result.scalar_type(),
                " can't be cast to the desired output type ",
                out.scalar_type());
    at::native::resize_output(out, result.sizes());
    out.copy_(result);
}

/* These fill a tensor of as many elements, whatever its sizes are. */
static bool keeps_sizes(const std::string &name)
{
    for (const char *one : {"aten::arange.", "aten::linspace.",
                            "aten::logspace.", "aten::range."})
        if (name.rfind(one, 0) == 0)
            return true;
    return false;
}

static void write(const Plan &plan, const c10::IValue &out, core_value &value)
{
    c10::IValue result = take(value);

    if (out.isTensor()) {
        at::Tensor to = out.toTensor(), from = result.toTensor();

        if (to.numel() == from.numel() && keeps_sizes(plan.name))
            from = from.view(to.sizes());
        write_tensor(to, from);
        return;
    }
    std::vector<at::Tensor> outs = out.toTensorVector();
    std::vector<at::Tensor> results = result.toTensorVector();
    TORCH_CHECK(outs.size() == results.size(), plan.name,
                ": expected an out= argument of size ", results.size(),
                ", got size ", outs.size());
    for (size_t i = 0; i < outs.size(); i++)
        write_tensor(outs[i], results[i]);
}

/* Computes the results, and copies them to the tensors that are given for
 * them, which get their sizes. */
static core_status call_functional(const Plan &plan, torch::jit::Stack *stack)
{
    Arguments arguments = torch::jit::last(*stack, plan.arguments);
    Values values(arguments);
    Results results(plan.functional->results);
    core_status status;

    fill(values, *plan.functional, arguments);
    status = invoke(*plan.functional, values, results);
    if (status != CORE_OK)
        return status;
    for (size_t i = 0; i < plan.outs.size(); i++)
        write(plan, arguments[plan.outs[i]], results.values[i]);
    finish(plan, stack, results);
    return CORE_OK;
}

/* Whether libcore may write to the out tensors.  One without elements is to be
 * resized, nearly always.  An operator that changes other arguments, too, is not
 * called a second time when the sizes turn out to be wrong. */
static bool has_space(const Plan &plan, Arguments arguments)
{
    if (plan.written.size() > plan.outs.size())
        return false;
    for (size_t position : plan.outs)
        if (!arguments[position].isTensor() ||
            arguments[position].toTensor().numel() == 0)
            return false;
    return true;
}

/* -------------------------------------------------------- the function -- */

static bool is_number(const c10::IValue &value)
{
    return value.isTensor() && value.toTensor().defined() &&
           value.toTensor().unsafeGetTensorImpl()->is_wrapped_number() &&
           value.toTensor().is_cpu();
}

static core_status call_form(const Plan &plan, const Form &form,
                             Arguments arguments, torch::jit::Stack *stack)
{
    Values values(arguments);
    bool changes = true;

    for (int result : plan.results)
        changes = changes && result >= 0;
    Results results(changes ? 0 : form.results);

    fill(values, form, arguments);
    core_status status = invoke(form, values, results);
    if (status == CORE_OK)
        finish(plan, stack, results);
    return status;
}

/* Python's numbers are of these types. */
static at::Scalar number_in(const at::Tensor &tensor)
{
    switch (tensor.scalar_type()) {
    case c10::ScalarType::Double:
        return *tensor.const_data_ptr<double>();
    case c10::ScalarType::Long:
        return *tensor.const_data_ptr<int64_t>();
    default:
        return tensor.item();
    }
}

/* The same call with a number in the place of a tensor. */
static core_status call_with_number(const Plan &plan, torch::jit::Stack *stack)
{
    Arguments given = torch::jit::last(*stack, plan.arguments);
    c10::SmallVector<c10::IValue, 4> arguments(given.begin(), given.end());

    arguments[plan.number] = number_in(given[plan.number].toTensor());
    return call_form(plan, *plan.with_number, arguments, stack);
}

static core_status call(const Plan &plan, torch::jit::Stack *stack)
{
    Arguments arguments = torch::jit::last(*stack, plan.arguments);
    core_status status;

    if (plan.scaling != Scaling::none && scale(plan, stack))
        return CORE_OK;
    if (plan.functional && (!plan.direct || !has_space(plan, arguments)))
        return call_functional(plan, stack);
    if (plan.with_number && is_number(arguments[plan.number]))
        status = call_with_number(plan, stack);
    else
        status = call_form(plan, *plan.direct, arguments, stack);
    if (plan.functional && status == CORE_ERROR_SHAPE)
        return call_functional(plan, stack);
    return status;
}

struct Boxed final : c10::OperatorKernel {
    explicit Boxed(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}

    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet,
                    torch::jit::Stack *stack)
    {
        Arguments arguments = torch::jit::last(*stack, plan_->arguments);
        core_status status = CORE_ERROR_UNSUPPORTED;

        check_same_device(op, arguments);
        if (!plan_->direct || accepts(*plan_->direct, op.schema(), arguments)) {
            try {
                status = call(*plan_, stack);
            } catch (const c10::NotImplementedError &) {
            }
        }
        if (is_lacking(status))
            fall_back(op, stack);
        else
            check(status);
    }

    std::unique_ptr<Plan> plan_;
};

/* -------------------------------------------------------- registration -- */

static std::vector<std::string> registered;

std::vector<std::string> registered_operators()
{
    return registered;
}

void register_operators()
{
    /* Registrations end with the library object, which lives forever. */
    static auto *library =
        new torch::Library(torch::Library::IMPL, "aten",
                           c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    auto &dispatcher = c10::Dispatcher::singleton();

    if (!registered.empty())
        return;
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findSchema(name);

        if (name.name.rfind("aten::", 0) != 0 || !op)
            continue;
        if (auto plan = plan_of(*op)) {
            registered.push_back(plan->name);
            library->impl(c10::toString(name).substr(6).c_str(),
                          torch::CppFunction::makeFromBoxedFunctor(
                              std::make_unique<Boxed>(std::move(plan))));
        }
    }
}

} // namespace libcore_torch
