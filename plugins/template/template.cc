// SPDX-License-Identifier: Apache-2.0 OR MIT-0
// Copyright The libcore authors

// template.cc: the skeleton in C++17, to be copied.  docs/plugin-languages.md
// has what to watch: nothing of C++ crosses the border.  No exception leaves a
// function that libcore calls, and no object of C++ is seen by it.

#include <libcore/sdk.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <vector>

CORE_SDK_NOTE("template_cxx", "The libcore authors", "0.1",
              "Apache-2.0 OR MIT-0", "cxx", "");

namespace {

const core_host *host;

// Guards what libcore calls: an exception becomes an error.
template <typename Body> core_status guarded(Body body) noexcept
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, "cxx",
                              "no host memory");
    } catch (const std::exception &error) {
        return core_sdk_error(host, CORE_ERROR_INTERNAL, "cxx", "%s",
                              error.what());
    } catch (...) {
        return core_sdk_error(host, CORE_ERROR_INTERNAL, "cxx",
                              "an unknown exception");
    }
}

// A block: its address is libcore's opaque handle; offsets are in bytes.  Its bytes
// are not initialized, which takes seconds for blocks of gigabytes.
struct block {
    std::unique_ptr<char[]> bytes;
    explicit block(std::size_t size) : bytes(new char[size]) {}
};

char *address(core_memory memory)
{
    if (memory.handle == nullptr) // of a tensor without elements
        return nullptr;
    return static_cast<block *>(memory.handle)->bytes.get() + memory.offset;
}

core_status enumerate(void *, uint32_t *out_count, core_string *out_reason)
{
    *out_count = 1;
    *out_reason = core_sdk_string("");
    return CORE_OK;
}

core_status device_open(void *backend, uint32_t, void **out_device)
{
    *out_device = backend;
    return CORE_OK;
}

void device_close(void *, void *) {}

core_status device_properties(void *, core_device_properties *out)
{
    out->flags = CORE_DEVICE_HAS_F64; // not FLAT: handles are not addresses
    out->base_alignment = 16;
    out->granularity = 16;
    out->numa_node = UINT32_MAX;
    return CORE_OK;
}

core_status alloc(void *, uint64_t size, core_memory *out_memory)
{
    return guarded([&] {
        out_memory->handle = new block(size);
        out_memory->offset = 0;
        return core_status(CORE_OK);
    });
}

void release(void *, core_memory memory, uint64_t)
{
    delete static_cast<block *>(memory.handle);
}

core_status copy_from_host(void *, void *, core_memory to, const void *from,
                           uint64_t size)
{
    std::memcpy(address(to), from, size);
    return CORE_OK;
}

core_status copy_to_host(void *, void *, void *to, core_memory from,
                         uint64_t size)
{
    std::memcpy(to, address(from), size);
    return CORE_OK;
}

core_status copy(void *, void *, core_memory to, core_memory from,
                 uint64_t size)
{
    std::memmove(address(to), address(from), size);
    return CORE_OK;
}

core_status fill(void *, void *, core_memory to, uint64_t size,
                 uint64_t pattern, uint32_t pattern_size)
{
    char *bytes = address(to);

    for (uint64_t i = 0; i < size; i++)
        bytes[i] = static_cast<char>(pattern >> i % pattern_size * 8);
    return CORE_OK;
}

// One function for a family: the user pointer selects the operator, the
// template parameter the element type.
using unary = double (*)(double);

template <typename T>
void unary_row(void *context, char *const *data, const int64_t *strides,
               int64_t count)
{
    auto function = reinterpret_cast<unary>(context);

    for (int64_t i = 0; i < count; i++) {
        T value;

        std::memcpy(&value, data[1] + i * strides[1], sizeof(T));
        value = static_cast<T>(function(static_cast<double>(value)));
        std::memcpy(data[0] + i * strides[0], &value, sizeof(T));
    }
}

// The loop is arbitrary: broadcast, with gaps, in several dimensions.
template <typename T>
core_status unary_kernel(core_call *call, const core_value *, uint32_t,
                         core_value *, uint32_t)
{
    return guarded([&] {
        core_loop loop = *call->loop;
        std::vector<core_operand> operands(loop.operands,
                                           loop.operands + loop.noperands);

        for (core_operand &o : operands) // from handles to addresses
            if (!(o.flags & CORE_OPERAND_IMMEDIATE))
                o.memory = {address(o.memory), 0};
        loop.operands = operands.data();
        return core_sdk_loop_rows(&loop, unary_row<T>, call->user);
    });
}

core_kernel unary_of(const char *name, core_dtype dtype, core_function launch,
                     unary function)
{
    core_kernel kernel = {};

    kernel.struct_size = sizeof(kernel);
    kernel.name = core_sdk_string(name);
    kernel.signature[0] = kernel.signature[1] = CORE_DTYPE_MASK(dtype);
    kernel.launch = launch;
    kernel.user = reinterpret_cast<void *>(function);
    return kernel;
}

core_status register_kernels(core_registry *registry)
{
    struct row {
        const char *name;
        unary function;
    };
    const row rows[] = {{"exp", std::exp}, {"sqrt", std::sqrt},
                        {"tanh", std::tanh}};
    std::vector<core_kernel> kernels;
    std::vector<const core_kernel *> pointers;

    for (const row &r : rows) {
        kernels.push_back(
            unary_of(r.name, CORE_F32, unary_kernel<float>, r.function));
        kernels.push_back(
            unary_of(r.name, CORE_F64, unary_kernel<double>, r.function));
    }
    for (const core_kernel &kernel : kernels)
        pointers.push_back(&kernel);
    // Everything is copied before the call returns.
    return host->register_kernels(registry, core_sdk_string("cxx"),
                                  pointers.data(),
                                  static_cast<uint32_t>(pointers.size()));
}

core_memory_table memory_table()
{
    core_memory_table table = {};

    table.struct_size = sizeof(table);
    table.alloc = alloc;
    table.free = release;
    table.copy_from_host = copy_from_host;
    table.copy_to_host = copy_to_host;
    table.copy = copy;
    table.fill = fill;
    return table;
}

core_status init(const core_host *given, core_registry *registry,
                 void **out_plugin)
{
    host = given;
    *out_plugin = nullptr;
    return guarded([&] {
        const core_memory_table memory = memory_table();
        core_backend backend = {};
        core_status status;

        backend.struct_size = sizeof(backend);
        backend.device_type = core_sdk_string("cxx");
        backend.user = &host;
        backend.enumerate = enumerate;
        backend.device_open = device_open;
        backend.device_close = device_close;
        backend.device_properties = device_properties;
        backend.memory = &memory;
        status = host->register_backend(registry, &backend);
        return status == CORE_OK ? register_kernels(registry) : status;
    });
}

core_status stop(void *, uint64_t)
{
    return CORE_OK;
}

} // namespace

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer)
{
    return core_sdk_negotiate(offer, answer, 1, CORE_PLUGIN_UNLOAD_SAFE, init,
                              stop);
}
