/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What a call keeps, it copies or retains: every test overwrites and frees what
 * it has passed, or releases it, as soon as the call returns.  A build with
 * --enable-sanitize=address finds what a call keeps by its address only. */

#include "support/stream.h"
#include "support/temporary_files.h"

#include <libcore/core.h>
#include <libcore/dlpack.h>
#include <libcore/function.h>
#include <libcore/functional.h>
#include <libcore/destination.h>
#include <libcore/compiled.h>
#include <libcore/grad_scaler.h>
#include <libcore/linear.h>
#include <libcore/mode.h>
#include <libcore/profiler.h>
#include <libcore/safetensors.h>
#include <libcore/saved.h>
#include <libcore/transform.h>

/* Memory that a test passes and then burns. */
static void *passed[16];
static size_t passed_sizes[16], npassed;

static void *give(const void *data, size_t size)
{
    void *copy = malloc(size);

    ck_assert(copy && npassed < 16);
    memcpy(copy, data, size);
    passed_sizes[npassed] = size;
    passed[npassed] = copy;
    npassed++;
    return copy;
}

static char *text(const char *from)
{
    return give(from, strlen(from) + 1);
}

#define GIVE(type, ...) ((type *)give(&(type){__VA_ARGS__}, sizeof(type)))
#define GIVE_LIST(type, ...) \
    ((type *)give((type[]){__VA_ARGS__}, sizeof((type[]){__VA_ARGS__})))

static void burn(void)
{
    while (npassed) {
        npassed--;
        memset(passed[npassed], 0xa5, passed_sizes[npassed]);
        free(passed[npassed]);
    }
}

static int drops;

static void count_drop(void *context)
{
    (void)context;
    drops++;
}

/* ----------------------------------------------------- custom functions -- */

static core_status square(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t noutputs)
{
    (void)context, (void)ninputs, (void)noutputs;
    return core_mul(inputs[0], inputs[0], &outputs[0]);
}

/* Computes what backward needs, and has no use of it itself. */
static core_status save_twice(core_function_context *function,
                              core_tensor *input)
{
    core_tensor *twice;
    core_tensor **list;
    core_status status = core_add(input, input, core_int(1), &twice);

    if (status != CORE_OK)
        return status;
    list = GIVE_LIST(core_tensor *, twice, NULL);
    status = core_context_save(function, list, 2);
    ck_assert_uint_eq(core_tensor_references(twice), 2);
    burn();
    core_tensor_release(twice);
    return status;
}

static core_status square_setup(core_function_context *function, void *context,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor *const *outputs, size_t noutputs)
{
    (void)context, (void)ninputs, (void)outputs, (void)noutputs;
    return save_twice(function, inputs[0]);
}

static core_status square_backward(core_node *node, void *context,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **gradients, size_t ngradients)
{
    core_tensor *twice;
    core_status status = core_node_saved(node, 0, &twice);

    (void)context, (void)ngrads, (void)ngradients;
    if (status != CORE_OK)
        return status;
    status = core_mul(grads[0], twice, &gradients[0]);
    core_tensor_release(twice);
    return status;
}

/* Others use the memory that was freed meanwhile. */
static void use_memory(void)
{
    for (int i = 0; i < 8; i++)
        drop(VECTOR(2, 99, 98));
}

START_TEST(setup_may_release_what_it_saves)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y;
    char name[] = "square";
    core_custom_function steps = {.struct_size = sizeof steps,
                                  .name = name,
                                  .forward = square,
                                  .setup = square_setup,
                                  .backward = square_backward};

    OK(core_function_apply(&steps, &x, 1, &y, 1));
    memset(name, 'x', 6);
    memset(&steps, 0xa5, sizeof steps);
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(keep(y))), "square");
    use_memory();
    backward(sum(y));
    HOLDS(core_tensor_grad(x), 2, 6, 8);
}
END_TEST

/* The tensor is an output, which the setup function releases as well. */
static core_status mark_setup(core_function_context *function, void *context,
                              core_tensor *const *inputs, size_t ninputs,
                              core_tensor *const *outputs, size_t noutputs)
{
    core_tensor *stranger;
    core_status status = core_neg(inputs[0], &stranger);

    (void)context, (void)ninputs, (void)outputs, (void)noutputs;
    if (status != CORE_OK)
        return status;
    status = core_context_mark_non_differentiable(function, stranger);
    core_tensor_release(stranger);
    if (status != CORE_OK)
        return status;
    status = core_neg(inputs[0], &stranger);
    if (status != CORE_OK)
        return status;
    status = core_context_mark_dirty(function, stranger);
    core_tensor_release(stranger);
    return status;
}

START_TEST(setup_may_release_what_it_marks)
{
    const core_custom_function steps = {.struct_size = sizeof steps,
                                        .name = "marks",
                                        .forward = square,
                                        .setup = mark_setup,
                                        .backward = square_backward};
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y;

    FAILS(core_function_apply(&steps, &x, 1, &y, 1), CORE_ERROR_AUTOGRAD,
          "dirty tensor 0 of marks is not one of its inputs");
}
END_TEST

START_TEST(recorded_function_keeps_copies)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y, *twice;
    core_function_info *info;
    bool before = core_grad_mode_set(false);

    OK(core_mul(x, x, &y));
    OK(core_add(x, x, core_int(1), &twice));
    core_grad_mode_set(before);
    drops = 0;
    info = GIVE(core_function_info, .struct_size = sizeof *info,
                .name = text("recorded"), .backward = square_backward,
                .release = count_drop);
    OK(core_function_record(info, GIVE_LIST(core_tensor *, x), 1,
                            GIVE_LIST(core_tensor *, twice), 1,
                            GIVE_LIST(core_tensor *, y), 1, NULL));
    burn();
    core_tensor_release(twice);
    use_memory();
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(keep(y))), "recorded");
    backward(sum(y));
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    ck_assert_int_eq(drops, 1);
}
END_TEST

/* -------------------------------------------------------- registrations -- */

static core_status operator_kernel(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    core_tensor *out;
    core_status status = core_mul(args[0].u.tensor, args[0].u.tensor, &out);

    (void)nargs, (void)nresults;
    ck_assert_str_eq(core_op_name(call->op), "owner::square");
    if (status == CORE_OK)
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = out}};
    return status;
}

static core_status operator_setup(core_function_context *function, void *user,
                                  const core_value *args, uint32_t nargs,
                                  const core_value *results, uint32_t nresults)
{
    (void)user, (void)nargs, (void)results, (void)nresults;
    return save_twice(function, args[0].u.tensor);
}

static core_tensor *call_operator(const char *name, core_tensor *x)
{
    core_value arg = {CORE_VALUE_TENSOR, 0, {.tensor = x}}, result;
    core_operator *op;

    OK(core_op_find(name, &op));
    OK(core_op_call(op, &arg, 1, &result, 1));
    return keep(result.u.tensor);
}

START_TEST(registrations_keep_copies)
{
    core_registration *all[4] = {NULL};
    core_tensor *x = leaf(VECTOR(2, 3, 4));
    core_operator_gradient *gradient =
        GIVE(core_operator_gradient, .struct_size = sizeof *gradient,
             .setup = operator_setup, .backward = square_backward);

    OK(core_op_register(text("owner::square(Tensor self) -> Tensor"), &all[0]));
    OK(core_function_register(text("owner::square"), CORE_KEY_BACKEND,
                              text("cpu"), operator_kernel, NULL, &all[1]));
    OK(core_gradient_register(text("owner::square"), gradient, &all[2]));
    OK(core_autocast_register(text("owner::square"), CORE_AUTOCAST_FP32,
                              &all[3]));
    burn();
    backward(sum(call_operator("owner::square", x)));
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    for (size_t i = 0; i < 4; i++)
        core_registration_release(all[i]);
}
END_TEST

static core_status answer(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    core_tensor *out;

    (void)call, (void)nargs, (void)nresults;
    OK(core_neg(args[0].u.tensor, &out));
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = out}};
    return CORE_OK;
}

START_TEST(fallbacks_and_shapes_keep_copies)
{
    core_registration *all[3] = {NULL};
    core_tensor *x = VECTOR(2, 3, 4);

    OK(core_op_register("owner::bare(Tensor self) -> Tensor", &all[0]));
    OK(core_fallback_register(CORE_KEY_BACKEND, text("cpu"), answer, NULL,
                              &all[1]));
    OK(core_shape_register(text("owner::bare"), answer, NULL, &all[2]));
    burn();
    HOLDS(call_operator("owner::bare", x), 2, -3, -4);
    for (size_t i = 3; i-- > 0;)
        core_registration_release(all[i]);
}
END_TEST

START_TEST(modes_keep_copies_and_references)
{
    core_mode *replacing, *counting;
    core_op_counter *counter;
    core_tensor *x = VECTOR(2, 3, 4);

    OK(core_op_counter_create(&counter));
    OK(core_mode_push_counting(counter, &counting));
    core_op_counter_release(counter);
    OK(core_mode_push_replacement(CORE_MODE_API, text("abs"), answer, NULL,
                                  &replacing));
    burn();
    HOLDS(CALL(abs, x), 2, -3, -4);
    OK(core_mode_pop(replacing));
    OK(core_mode_pop(counting));
}
END_TEST

/* ------------------------------------------------------- saved tensors -- */

static core_status pack(void *context, core_tensor *tensor, void **out_handle)
{
    (void)context;
    *out_handle = core_tensor_retain(tensor);
    return CORE_OK;
}

static core_status unpack(void *context, void *handle, core_tensor **out_tensor)
{
    ck_assert_int_eq(*(int *)context, 7);
    *out_tensor = core_tensor_retain(handle);
    return CORE_OK;
}

static void forget(void *context, void *handle)
{
    ck_assert_int_eq(*(int *)context, 7);
    core_tensor_release(handle);
}

static void free_drop(void *context)
{
    drops++;
    free(context);
}

static int *seven(void)
{
    int *context = malloc(sizeof *context);

    ck_assert_ptr_nonnull(context);
    *context = 7;
    return context;
}

START_TEST(saved_tensor_hooks_outlive_their_scope)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y;
    core_saved_hooks_info *info;

    drops = 0;
    info = GIVE(core_saved_hooks_info, .struct_size = sizeof *info,
                .pack = pack, .unpack = unpack, .release = forget,
                .context = seven(), .drop = free_drop);
    OK(core_saved_hooks_push(info));
    burn();
    y = sum(mul(x, x));
    OK(core_saved_hooks_pop());
    ck_assert_int_eq(drops, 0);
    backward(y);
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    drop_all();
    ck_assert_int_eq(drops, 1);
}
END_TEST

static core_status cube(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    core_tensor *square;
    core_status status = core_mul(inputs[0], inputs[0], &square);

    (void)ninputs;
    ck_assert(!context || *(int *)context == 7);
    if (status != CORE_OK)
        return status;
    *noutputs = 1;
    status = core_mul(square, inputs[0], &outputs[0]);
    core_tensor_release(square);
    return status;
}

START_TEST(checkpoint_keeps_its_inputs)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *scaled, *y;
    core_checkpoint_info *info;
    size_t count = 1;

    drops = 0;
    OK(core_mul(x, x, &scaled));
    info = GIVE(core_checkpoint_info, .struct_size = sizeof *info,
                .function = cube, .context = seven(), .drop = free_drop);
    OK(core_checkpoint(info, GIVE_LIST(core_tensor *, scaled), 1, &y, &count));
    burn();
    core_tensor_release(scaled);
    use_memory();
    backward(sum(keep(y)));
    HOLDS(core_tensor_grad(x), 2, 6, 192);
    drop_all();
    ck_assert_int_eq(drops, 1);
}
END_TEST

/* ---------------------------------------------------------------- hooks -- */

static core_status tensor_hook(void *context, core_tensor *grad,
                               core_tensor **out_grad)
{
    ck_assert_int_eq(*(int *)context, 7);
    return core_add(grad, grad, core_int(1), out_grad);
}

static core_status leaf_hook(void *context, core_tensor *tensor)
{
    (void)tensor;
    ck_assert_int_eq(*(int *)context, 7);
    return CORE_OK;
}

static core_status pre_hook(void *context, core_node *node, core_tensor **grads,
                            size_t count)
{
    (void)node, (void)grads, (void)count;
    ck_assert_int_eq(*(int *)context, 7);
    return CORE_OK;
}

static core_status post_hook(void *context, core_node *node,
                             core_tensor *const *grads, size_t ngrads,
                             core_tensor **gradients, size_t ngradients)
{
    (void)node, (void)grads, (void)ngrads, (void)gradients, (void)ngradients;
    ck_assert_int_eq(*(int *)context, 7);
    return CORE_OK;
}

START_TEST(hooks_live_with_what_they_are_on)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y = mul(x, x), *z = sum(y);
    core_node *node = core_node_retain(core_tensor_grad_fn(y));
    core_hook *hook;

    drops = 0;
    OK(core_tensor_register_hook(y, tensor_hook, seven(), free_drop, &hook));
    core_hook_release(hook);
    OK(core_tensor_register_accumulate_hook(x, leaf_hook, seven(), free_drop,
                                            &hook));
    core_hook_release(hook);
    OK(core_node_register_pre_hook(node, pre_hook, seven(), free_drop, NULL));
    OK(core_node_register_post_hook(node, post_hook, seven(), free_drop, NULL));
    core_node_release(node);
    drop(y);
    backward(z);
    HOLDS(core_tensor_grad(x), 2, 12, 16);
    drop_all();
    ck_assert_int_eq(drops, 4);
}
END_TEST

static core_hook *own_hook;

static core_status removes_itself(void *context, core_tensor *grad,
                                  core_tensor **out_grad)
{
    core_hook_remove(own_hook);
    ck_assert_int_eq(*(int *)context, 7); /* it is running */
    return core_neg(grad, out_grad);
}

START_TEST(hook_that_removes_itself_keeps_its_context)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *z = sum(x);

    drops = 0;
    OK(core_tensor_register_hook(x, removes_itself, seven(), free_drop,
                                 &own_hook));
    backward(z);
    HOLDS(core_tensor_grad(x), 2, -1, -1);
    ck_assert_int_eq(drops, 1);
}
END_TEST

START_TEST(gradients_are_kept_by_their_tensors)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *grad = VECTOR(2, 10, 20), *y, *z;

    OK(core_tensor_set_grad(x, grad));
    drop(grad);
    y = mul(x, x);
    OK(core_tensor_retain_grad(y));
    z = sum(y);
    backward(z);
    drop(z);
    HOLDS(core_tensor_grad(x), 2, 16, 28);
    HOLDS(core_tensor_grad(y), 2, 1, 1);
}
END_TEST

START_TEST(anomaly_place_is_copied_by_nodes)
{
    core_tensor *x = leaf(VECTOR(1, 0)), *y;

    core_anomaly_mode_set(true);
    core_anomaly_place_set(text("the first layer"));
    y = CALL(sqrt, mul(x, x));
    core_anomaly_place_set(NULL);
    burn();
    y = sum(mul(y, VECTOR(1, 0)));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD,
          "the first layer");
    core_anomaly_mode_set(false);
}
END_TEST

/* --------------------------------------------------------- derivatives -- */

START_TEST(derivatives_keep_what_they_depend_on)
{
    core_tensor *x = leaf(VECTOR(1, 2)), *copy, *vector, *tangent, *gradient;
    core_derivative *of;
    size_t count = 1;

    OK(core_mul(x, x, &copy));
    vector = VECTOR(1, 1);
    of = GIVE(core_derivative, .struct_size = sizeof *of,
              .flags = CORE_CREATE_GRAPH, .function = cube,
              .inputs = GIVE_LIST(core_tensor *, copy), .ninputs = 1);
    OK(core_jvp(of, GIVE_LIST(core_tensor *, vector), &tangent, &count));
    OK(core_vjp(of, GIVE_LIST(core_tensor *, vector), NULL, NULL, &gradient));
    burn();
    core_tensor_release(copy);
    drop(vector);
    use_memory();
    keep(tangent);
    keep(gradient);
    HOLDS(tangent, 1, 48); /* 3 u^2, u = x^2 */
    HOLDS(gradient, 1, 48);
    backward(sum(add(tangent, gradient)));
    HOLDS(core_tensor_grad(x), 1, 2 * 12 * 8); /* of 3 x^4 */
}
END_TEST

START_TEST(destinations_are_used_by_their_call_only)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *buffer = VECTOR(2, 0, 0), *y;
    core_gradient_destination *destination;

    y = sum(mul(x, x));
    destination =
        GIVE(core_gradient_destination, .struct_size = sizeof *destination,
             .input = x, .buffer = buffer);
    OK(core_backward_into(GIVE_LIST(core_tensor *, y), 1, NULL,
                          CORE_RETAIN_GRAPH, destination, 1));
    HOLDS(buffer, 2, 6, 8);
    burn();
    drop(buffer);
    use_memory();
    backward(y);
    HOLDS(core_tensor_grad(x), 2, 6, 8);
}
END_TEST

START_TEST(vmap_options_are_copied_by_the_graph)
{
    core_tensor *x = leaf(MATRIX(2, 2, 1, 2, 3, 4)), *y;
    core_vmap_options *options;
    core_tensor *copy;

    OK(core_mul(x, x, &copy));
    options = GIVE(core_vmap_options, .struct_size = sizeof *options,
                   .in_dims = GIVE_LIST(int64_t, 1),
                   .out_dims = GIVE_LIST(int64_t, 1));
    OK(core_vmap(cube, NULL, options, GIVE_LIST(core_tensor *, copy), 1, &y,
                 1));
    burn();
    core_tensor_release(copy);
    use_memory();
    backward(sum(keep(y)));
    HOLDS(core_tensor_grad(x), 4, 6, 192, 1458, 6144);
}
END_TEST

/* ------------------------------------------------------------- compiled -- */

static core_tensor *hidden;

static core_status plus_hidden(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    (void)context, (void)ninputs;
    *noutputs = 1;
    return core_add(inputs[0], hidden, core_int(1), &outputs[0]);
}

START_TEST(program_keeps_its_hidden_inputs)
{
    core_tensor *x = VECTOR(2, 3, 4), *y;
    core_program *program;

    hidden = VECTOR(2, 10, 20);
    OK(core_program_trace(plus_hidden, NULL, GIVE_LIST(core_tensor *, x), 1, 1,
                          &program));
    burn();
    drop(hidden);
    use_memory();
    OK(core_program_run(program, GIVE_LIST(core_tensor *, x), 1, &y, 1));
    burn();
    core_program_release(program);
    HOLDS(keep(y), 2, 13, 24);
}
END_TEST

START_TEST(compiled_function_copies_its_options)
{
    core_tensor *x = VECTOR(2, 3, 4), *y;
    core_compiled *compiled;
    core_compile_options *options;
    int key = 1;

    hidden = VECTOR(2, 10, 20);
    options = GIVE(core_compile_options, .struct_size = sizeof *options,
                   .key = &key, .key_size = sizeof key);
    OK(core_compile(plus_hidden, NULL, options, &compiled));
    burn();
    for (key = 0; key < 4; key++) {
        OK(core_compiled_call(compiled, GIVE_LIST(core_tensor *, x), 1, &y, 1));
        burn();
        HOLDS(keep(y), 2, 13, 24);
    }
    core_compiled_release(compiled);
}
END_TEST

/* --------------------------------------------------- linear, quantizers -- */

static core_quantizer *quantizer(core_dtype dtype)
{
    const float history[2] = {4, 2};
    core_quantizer *out;
    core_quantizer_options *options = GIVE(
        core_quantizer_options, .struct_size = sizeof *options,
        .scaling = CORE_SCALING_DELAYED, .dtype = dtype, .history_length = 2);
    core_quantizer_state *state =
        GIVE(core_quantizer_state, .struct_size = sizeof *state,
             .history_count = 2, .scale = 1);

    OK(core_quantizer_create(options, &out));
    OK(core_quantizer_set_state(out, state, give(history, sizeof history)));
    burn();
    ck_assert_float_eq(core_quantizer_history(out)[1], 2);
    return out;
}

static core_tensor *small(core_dtype dtype, int64_t rows, int64_t columns)
{
    core_tensor *out;

    OK(core_full((int64_t[]){rows, columns}, 2, core_float(0.5), dtype, NULL,
                 &out));
    return out;
}

START_TEST(linear_keeps_its_arguments_until_backward)
{
    core_quantizer *quantizers[3] = {
        quantizer(CORE_F8E4M3), quantizer(CORE_F8E4M3), quantizer(CORE_F8E5M2)};
    core_linear_wgrad_queue *queue;
    core_tensor *x = small(CORE_F32, 2, 32), *w = small(CORE_F32, 4, 32), *y;
    core_tensor *main_grad = small(CORE_F32, 4, 32), *base = leaf(keep(x));
    core_linear_forward_args *args;

    OK(core_mul(base, base, &x));
    leaf(keep(w));
    OK(core_linear_wgrad_queue_create(&queue));
    args =
        GIVE(core_linear_forward_args, .struct_size = sizeof *args, .input = x,
             .weight = w, .input_quantizer = quantizers[0],
             .weight_quantizer = quantizers[1], .grad_quantizer = quantizers[2],
             .main_grad = main_grad, .wgrad_queue = queue);
    OK(core_linear_apply(args, &y));
    burn();
    core_tensor_release(x);
    for (int i = 0; i < 3; i++)
        core_quantizer_release(quantizers[i]);
    core_linear_wgrad_queue_release(
        core_linear_wgrad_queue_count(queue) == 0 ? queue : NULL);
    use_memory();
    backward(sum(keep(y)));
    core_tensor_release(main_grad);
    drop_all();
}
END_TEST

START_TEST(queued_weight_gradient_keeps_its_tensors)
{
    core_tensor *x = small(CORE_F32, 2, 32),
                *w = leaf(keep(small(CORE_F32, 4, 32)));
    core_linear_wgrad_queue *queue;
    core_linear_workspace *workspace;
    core_linear_forward_args *args;
    core_quantizer *quantizers[2] = {quantizer(CORE_F8E4M3),
                                     quantizer(CORE_F8E4M3)};
    core_tensor *y;

    OK(core_linear_wgrad_queue_create(&queue));
    OK(core_linear_workspace_create(&workspace));
    args = GIVE(
        core_linear_forward_args, .struct_size = sizeof *args, .input = x,
        .weight = w, .wgrad_queue = queue, .workspace = workspace,
        .microbatch = CORE_LINEAR_FIRST_MICROBATCH,
        .input_quantizer = quantizers[0], .weight_quantizer = quantizers[1]);
    OK(core_linear_apply(args, &y));
    burn();
    core_linear_workspace_release(workspace);
    for (int i = 0; i < 2; i++)
        core_quantizer_release(quantizers[i]);
    core_tensor_release(x);
    backward(sum(keep(y)));
    drop(y);
    ck_assert_uint_eq(core_linear_wgrad_queue_count(queue), 1);
    use_memory();
    OK(core_linear_backward_dw(queue));
    ck_assert_ptr_nonnull(core_tensor_grad(w));
    core_linear_wgrad_queue_release(queue);
}
END_TEST

/* ---------------------------------------------------------- optimizers -- */

static core_optimizer *adam(core_tensor *parameter)
{
    core_optimizer *out;
    core_adam_options *options = GIVE(
        core_adam_options, .struct_size = sizeof *options, .learning_rate = 0.1,
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8);

    OK(core_adam_create(GIVE_LIST(core_tensor *, parameter), 1, options, &out));
    burn();
    return out;
}

START_TEST(optimizer_keeps_parameters_and_states)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *states[2];
    core_optimizer *optimizer = adam(x);

    for (int i = 0; i < 2; i++)
        states[i] = VECTOR(2, 0.5, 0.5);
    OK(core_optimizer_set_state(
        optimizer, 0, 1, GIVE_LIST(core_tensor *, states[0], states[1]), 2));
    burn();
    drop(states[0]);
    drop(states[1]);
    backward(sum(mul(x, x)));
    drop(x);
    use_memory();
    OK(core_optimizer_step(optimizer));
    ck_assert_uint_eq(core_optimizer_steps(optimizer, 0), 2);
    core_optimizer_release(optimizer);
}
END_TEST

/* A new optimizer may have the address of the old one. */
START_TEST(scaler_does_not_mistake_optimizers)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4));
    core_grad_scaler *scaler;
    core_grad_scaler_state *state =
        GIVE(core_grad_scaler_state, .struct_size = sizeof *state, .scale = 2,
             .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 10);

    OK(core_grad_scaler_create(state, &scaler));
    burn();
    for (int i = 0; i < 4; i++) {
        core_optimizer *optimizer = adam(x);
        bool stepped;

        backward(sum(mul(x, x)));
        OK(core_grad_scaler_step(scaler, optimizer, &stepped));
        ck_assert(stepped);
        core_optimizer_release(optimizer);
    }
    OK(core_grad_scaler_update(scaler));
    core_grad_scaler_release(scaler);
}
END_TEST

/* ------------------------------------------------ profiler and settings -- */

START_TEST(profiler_copies_options_and_names)
{
    core_profiler_options *options =
        GIVE(core_profiler_options, .struct_size = sizeof *options,
             .flags = CORE_PROFILE_SHAPES);
    core_tensor *x = VECTOR(2, 3, 4);
    core_profiler *profiler;
    core_range range;
    char *table;

    OK(core_profiler_start(options, &profiler));
    range = core_range_begin(text("the range"));
    burn();
    mul(x, x);
    core_range_end(range);
    OK(core_profiler_stop(profiler));
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &table));
    ck_assert_ptr_nonnull(strstr(table, "the range"));
    core_text_free(table);
    core_profiler_release(profiler);
}
END_TEST

START_TEST(settings_and_errors_are_copied)
{
    const char *value;

    OK(core_setting_set(text("LIBCORE_FALLBACK"), text("count")));
    burn();
    OK(core_setting_get("LIBCORE_FALLBACK", &value));
    ck_assert_str_eq(value, "count");
    OK(core_setting_set("LIBCORE_FALLBACK", NULL));
    ck_assert_int_eq(core_error_set(CORE_ERROR_IO, text("an old story")),
                     CORE_ERROR_IO);
    burn();
    ck_assert_str_eq(core_error_message(), "an old story");
}
END_TEST

static int told;

static void sink(void *context, uint32_t level, const char *component,
                 const char *line)
{
    (void)level, (void)component, (void)line;
    ck_assert_int_eq(*(int *)context, 7);
    told++;
}

START_TEST(log_sink_is_not_called_after_another_is_set)
{
    int *context = seven();

    core_log_set_sink(sink, context, CORE_LOG_DEBUG);
    core_log_set_sink(NULL, NULL, 0);
    free(context);
    told = 0;
    OK(core_plugins_scan());
    ck_assert_int_eq(told, 0);
}
END_TEST

/* ---------------------------------------------------------------- memory -- */

START_TEST(tensors_copy_data_and_sizes)
{
    const double values[2] = {3, 4};
    core_tensor *x, *y;

    OK(core_tensor_from_data(give(values, sizeof values), CORE_F64,
                             GIVE_LIST(int64_t, 2), 1, NULL, &x));
    burn();
    HOLDS(keep(x), 2, 3, 4);
    OK(core_reshape(x, GIVE_LIST(int64_t, 1, 2), 2, &y));
    OK(core_tensor_write(x, give(values, sizeof values), sizeof values));
    burn();
    HOLDS(keep(y), 2, 3, 4);
}
END_TEST

static void free_memory(void *context, void *data)
{
    free_drop(context);
    free(data);
}

START_TEST(memory_of_a_program_lives_with_its_last_view)
{
    double *values = malloc(2 * sizeof *values);
    core_tensor *x, *y;

    ck_assert_ptr_nonnull(values);
    values[0] = 3;
    values[1] = 4;
    drops = 0;
    OK(core_tensor_from_memory(values, CORE_F64, GIVE_LIST(int64_t, 2), 1,
                               free_memory, seven(), &x));
    burn();
    OK(core_neg(x, &y));
    core_tensor_release(y);
    OK(core_reshape(x, (int64_t[]){2, 1}, 2, &y));
    core_tensor_release(x);
    HOLDS(y, 2, 3, 4);
    ck_assert_int_eq(drops, 0);
    core_tensor_release(y);
    ck_assert_int_eq(drops, 1);
}
END_TEST

START_TEST(exchanged_tensors_keep_their_memory)
{
    core_tensor *x = VECTOR(2, 3, 4), *y;
    core_dlpack_managed *managed;

    OK(core_dlpack_export(x, 0, CORE_DLPACK_STREAM_NONE, &managed));
    drop(x);
    use_memory();
    OK(core_dlpack_import(managed, NULL, NULL, &y));
    HOLDS(keep(y), 2, 3, 4);
}
END_TEST

START_TEST(files_keep_their_mapping)
{
    core_safetensors *file;
    temporary_path path;
    core_tensor *x = VECTOR(2, 3, 4), *y;
    core_named_tensor *tensors = GIVE(core_named_tensor, text("x"), x);
    core_named_text *texts = GIVE(core_named_text, text("key"), text("value"));

    temporary_file(path, "owner");
    OK(core_safetensors_save(text(path), tensors, 1, texts, 1));
    burn();
    OK(core_safetensors_map(text(path), &file));
    OK(core_safetensors_tensor(file, text("x"), &y));
    burn();
    core_safetensors_close(file);
    HOLDS(keep(y), 2, 3, 4);
    temporary_remove(path);
}
END_TEST

static core_generator *drawn_from;

static core_status draws(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    (void)context, (void)inputs, (void)ninputs;
    *noutputs = 1;
    return core_rand((int64_t[]){2}, 1, drawn_from, CORE_F64, NULL,
                     &outputs[0]);
}

START_TEST(programs_keep_generators)
{
    core_program *program;
    double first[2], second[2];
    core_tensor *x;

    OK(core_generator_create(7, &drawn_from));
    OK(core_rand((int64_t[]){2}, 1, drawn_from, CORE_F64, NULL, &x));
    OK(core_tensor_read(keep(x), first, sizeof first));
    core_generator_seed(drawn_from, 7);
    OK(core_program_trace(draws, NULL, NULL, 0, 1, &program));
    core_generator_release(drawn_from);
    use_memory();
    OK(core_program_run(program, NULL, 0, &x, 1));
    OK(core_tensor_read(keep(x), second, sizeof second));
    ck_assert_mem_eq(first, second, sizeof first);
    core_program_release(program);
}
END_TEST

/* --------------------------------------------------------------- streams -- */

static void host_function(void *context)
{
    free_drop(context);
}

START_TEST(threads_keep_streams_and_pools)
{
    core_device *sim = device_of("sim");
    core_stream *stream = stream_of(sim), *before;
    core_memory_pool *pool;
    core_event *event = event_of(sim);
    core_tensor *x;

    drops = 0;
    OK(core_stream_default(sim, &before));
    OK(core_stream_set_current(stream));
    core_stream_release(stream);
    OK(core_memory_pool_create(sim, &pool));
    OK(core_memory_pool_begin(pool));
    core_memory_pool_release(pool);
    x = filled(sim, 64, 3);
    OK(core_memory_pool_end(pool));
    OK(core_stream_current(sim, &stream));
    OK(core_event_record(event, stream));
    OK(core_stream_wait_event(before, event));
    core_event_release(event);
    OK(core_stream_callback(stream, host_function, seven(), NULL));
    OK(core_stream_set_current(before));
    all_are(x, 3);
    OK(core_device_synchronize(sim));
    ck_assert_int_eq(drops, 1);
}
END_TEST

START_TEST(recorded_streams_may_be_released)
{
    core_device *sim = device_of("sim");
    core_stream *stream = stream_of(sim);
    core_tensor *x = filled(sim, 64, 3);

    OK(core_tensor_record_stream(x, stream));
    core_stream_release(stream);
    drop(x);
    all_are(filled(sim, 64, 4), 4);
}
END_TEST

START_TEST(graphs_keep_pools_streams_and_tensors)
{
    core_device *sim = device_of("sim");
    core_stream *stream = stream_of(sim), *other = stream_of(sim);
    core_memory_pool *pool;
    core_tensor *x = filled(sim, 64, 3), *y;
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_memory_pool_create(sim, &pool));
    OK(core_capture_begin(stream, pool));
    core_memory_pool_release(pool);
    y = CALL(neg, x);
    OK(core_capture_end(stream, &graph));
    core_stream_release(stream);
    OK(core_graph_launch(graph, other));
    core_graph_release(graph);
    OK(core_stream_synchronize(other));
    core_stream_release(other);
    all_are(y, -3);
}
END_TEST

SUITE("base/ownership", setup_may_release_what_it_saves,
      setup_may_release_what_it_marks, recorded_function_keeps_copies,
      registrations_keep_copies, fallbacks_and_shapes_keep_copies,
      modes_keep_copies_and_references, saved_tensor_hooks_outlive_their_scope,
      checkpoint_keeps_its_inputs, hooks_live_with_what_they_are_on,
      hook_that_removes_itself_keeps_its_context,
      gradients_are_kept_by_their_tensors, anomaly_place_is_copied_by_nodes,
      derivatives_keep_what_they_depend_on,
      destinations_are_used_by_their_call_only,
      vmap_options_are_copied_by_the_graph, program_keeps_its_hidden_inputs,
      compiled_function_copies_its_options,
      linear_keeps_its_arguments_until_backward,
      queued_weight_gradient_keeps_its_tensors,
      optimizer_keeps_parameters_and_states, scaler_does_not_mistake_optimizers,
      profiler_copies_options_and_names, settings_and_errors_are_copied,
      log_sink_is_not_called_after_another_is_set, tensors_copy_data_and_sizes,
      memory_of_a_program_lives_with_its_last_view,
      exchanged_tensors_keep_their_memory, files_keep_their_mapping,
      programs_keep_generators, threads_keep_streams_and_pools,
      recorded_streams_may_be_released, graphs_keep_pools_streams_and_tensors)
