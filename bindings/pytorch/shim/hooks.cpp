/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Generators, and the hooks that torch calls for the device type. */

#include "fork.h"
#include "shim.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/StorageImpl.h>

#include <array>
#include <cstring>
#include <random>

namespace libcore_torch
{

/* ---------------------------------------------------------- generators -- */

struct GeneratorImpl final : c10::GeneratorImpl {
    /* Takes the reference. */
    GeneratorImpl(c10::DeviceIndex index, core_generator *taken)
        : c10::GeneratorImpl(
              c10::Device(device_type, index),
              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
          generator(taken)
    {
    }

    ~GeneratorImpl() override
    {
        core_generator_release(generator);
    }

    void set_current_seed(uint64_t seed) override
    {
        core_generator_seed(generator, seed);
    }

    uint64_t current_seed() const override
    {
        uint64_t seed;

        core_generator_state(generator, &seed, nullptr);
        return seed;
    }

    uint64_t seed() override
    {
        std::random_device source;
        uint64_t seed = (static_cast<uint64_t>(source()) << 32) | source();

        core_generator_seed(generator, seed);
        return seed;
    }

    void set_offset(uint64_t offset) override
    {
        core_generator_set_state(generator, current_seed(), offset);
    }

    uint64_t get_offset() const override
    {
        uint64_t offset;

        core_generator_state(generator, nullptr, &offset);
        return offset;
    }

    /* The state is a tensor of 16 bytes: seed and offset. */
    void set_state(const c10::TensorImpl &state) override
    {
        uint64_t numbers[2];

        TORCH_CHECK(state.numel() == sizeof numbers &&
                        state.dtype() == c10::ScalarType::Byte &&
                        state.is_cpu() && state.is_contiguous(),
                    "libcore: the state of a generator is a tensor of ",
                    sizeof numbers, " bytes on the CPU");
        std::memcpy(numbers, state.data(), sizeof numbers);
        core_generator_set_state(generator, numbers[0], numbers[1]);
    }

    c10::intrusive_ptr<c10::TensorImpl> get_state() const override
    {
        uint64_t numbers[2];
        auto state =
            at::detail::empty_cpu({sizeof numbers}, c10::ScalarType::Byte);

        core_generator_state(generator, &numbers[0], &numbers[1]);
        std::memcpy(state.mutable_data_ptr(), numbers, sizeof numbers);
        return state.getIntrusivePtr();
    }

    GeneratorImpl *clone_impl() const override
    {
        core_generator *copy;

        check(core_generator_create(current_seed(), &copy));
        core_generator_set_state(copy, current_seed(), get_offset());
        return new GeneratorImpl(device().index(), copy);
    }

    core_generator *generator;
};

static ForkMutex lock;
static std::array<at::Generator, 128> defaults;

const at::Generator &default_generator(c10::DeviceIndex index)
{
    core_device *device = device_at(index);
    core_generator *generator;

    if (index < 0)
        index = current_index();
    at::Generator &known = defaults[static_cast<size_t>(index)];
    {
        std::lock_guard<ForkMutex> guard(lock);

        if (known.defined())
            return known;
    }
    check(core_generator_default(device, &generator));
    auto made = at::make_generator<GeneratorImpl>(index, generator);
    std::lock_guard<ForkMutex> guard(lock);
    if (!known.defined())
        known = made;
    return known;
}

at::Generator new_generator(c10::DeviceIndex index)
{
    core_generator *generator;

    device_at(index);
    check(core_generator_create(c10::default_rng_seed_val, &generator));
    return at::make_generator<GeneratorImpl>(
        index < 0 ? current_index() : index, generator);
}

core_generator *generator_of(const at::Generator &generator)
{
    TORCH_CHECK(generator.device().type() == device_type,
                "libcore: expected a generator of a libcore device, found one "
                "of ",
                generator.device());
    return static_cast<GeneratorImpl *>(generator.unsafeGetGeneratorImpl())
        ->generator;
}

void seed_all(uint64_t seed)
{
    for (c10::DeviceIndex i = 0; i < device_count(); i++)
        core_generator_seed(generator_of(default_generator(i)), seed);
}

/* --------------------------------------------------------------- hooks -- */

static bool is_pinned(const void *data)
{
    for (c10::DeviceIndex i = 0; i < device_count(); i++)
        if (core_host_memory_is_pinned(device_at(i), data, 1))
            return true;
    return false;
}

/* Memory of the host, and tokens of devices without addresses, could be any
 * device's. */
static c10::Device device_of_address(const void *data)
{
    for (c10::DeviceIndex i = 0; i < device_count(); i++)
        if (core_memory_contains(device_at(i), data, 1))
            return c10::Device(device_type, i);
    TORCH_CHECK(false, "libcore: the address ", data,
                " is in no segment of a device's allocator, so it does not say "
                "of which device it is; name it with target_device() of "
                "at::for_blob");
}

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override
    {
        return true;
    }

    bool isAvailable() const override
    {
        return device_count() > 0;
    }

    bool hasPrimaryContext(c10::DeviceIndex index) const override
    {
        return index >= 0 && index < device_count();
    }

    c10::DeviceIndex deviceCount() const override
    {
        return device_count();
    }

    void setCurrentDevice(c10::DeviceIndex index) const override
    {
        set_current_index(index);
    }

    c10::DeviceIndex getCurrentDevice() const override
    {
        return current_index();
    }

    c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override
    {
        c10::DeviceIndex before = current_index();

        set_current_index(index);
        return before;
    }

    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override
    {
        return index < 0 ? current_index() : exchangeDevice(index);
    }

    const at::Generator &getDefaultGenerator(
        c10::DeviceIndex index) const override
    {
        return default_generator(index);
    }

    at::Generator getNewGenerator(c10::DeviceIndex index) const override
    {
        return new_generator(index);
    }

    c10::Device getDeviceFromPtr(void *data) const override
    {
        return device_of_address(data);
    }

    bool isPinnedPtr(const void *data) const override
    {
        return is_pinned(data);
    }

    c10::Allocator *getPinnedMemoryAllocator() const override
    {
        return pinned_allocator();
    }

    void resizePrivateUse1Bytes(const c10::Storage &storage,
                                size_t bytes) const override
    {
        resize_storage(*storage.unsafeGetStorageImpl(), bytes);
    }
};

void register_hooks()
{
    /* As torch wants it: never freed. */
    at::RegisterPrivateUse1HooksInterface(new Hooks);
}

} // namespace libcore_torch
