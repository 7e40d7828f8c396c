/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reduce.cu: reductions.  A reducer is a state, how it takes an element, how it
 * merges a state of later elements, and what it writes at the end.  The order
 * in which elements are combined depends on the problem alone, so sums do not
 * depend on the launch.
 *
 * red_rows_…: adjacent threads share an output, or a chunk of its elements.
 * red_columns_…: adjacent threads have adjacent outputs; threads of a block
 * that are 256 / lanes apart may share one. red_merge_…: merges the states of
 * chunks. */

#include "block.h"

/* gpu_reduction.mode, for each reducer. */
enum { SUM_PLAIN, SUM_MEAN, SUM_WITHOUT_NAN };
enum { MOST_GREATEST, MOST_LEAST, MOST_ABSOLUTE = 2 };
enum { TRUTH_ANY, TRUTH_ALL, TRUTH_COUNT };
enum { NORM_1, NORM_2, NORM_P };
enum { MOMENTS_VAR, MOMENTS_STD };

GPU_DEVICE void put(const gpu_reduction &p, int k, int64_t offset, double x)
{
    gpu_write_f64((char *)p.to[k] + offset, p.to_dtype[k], x);
}
GPU_DEVICE void put(const gpu_reduction &p, int k, int64_t offset, float x)
{
    gpu_write_f64((char *)p.to[k] + offset, p.to_dtype[k], (double)x);
}
GPU_DEVICE void put(const gpu_reduction &p, int k, int64_t offset, int64_t x)
{
    gpu_write_i64((char *)p.to[k] + offset, p.to_dtype[k], x);
}

/* The type of sums of T. */
template <class T> struct wide {
    typedef double type;
};
template <> struct wide<int64_t> {
    typedef int64_t type;
};

GPU_DEVICE double mean_of(double total, double n)
{
    return total / n;
}
GPU_DEVICE int64_t mean_of(int64_t total, int64_t n)
{
    return n != 0 ? total / n : 0;
}

template <class T> struct sum {
    typedef typename wide<T>::type W;
    struct state {
        W total;
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &)
    {
        return {0};
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t,
                                       const gpu_reduction &p)
    {
        s.total += p.mode == SUM_WITHOUT_NAN && x != x ? (W)0 : (W)x;
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        s.total += t.total;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        W n = (W)p.count;

        if (p.mode == SUM_MEAN)
            put(p, 0, to[0], mean_of(s.total, n));
        else
            put(p, 0, to[0], s.total);
    }
};

template <class T> struct prod {
    typedef typename wide<T>::type W;
    struct state {
        W total;
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &)
    {
        return {1};
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t,
                                       const gpu_reduction &)
    {
        s.total *= (W)x;
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        s.total *= t.total;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        put(p, 0, to[0], s.total);
    }
};

/* Whether x comes before y; NaN comes first. */
template <class T> GPU_DEVICE bool before(T x, T y, uint32_t mode)
{
    if (x != x)
        return y == y;
    return mode & MOST_LEAST ? x < y : x > y;
}

template <class T> GPU_DEVICE T lowest(void);
template <> GPU_DEVICE_MEMBER float lowest<float>(void)
{
    return -INFINITE_f32;
}
template <> GPU_DEVICE_MEMBER double lowest<double>(void)
{
    return -INFINITE_f64;
}
template <> GPU_DEVICE_MEMBER int64_t lowest<int64_t>(void)
{
    return INT64_MIN;
}
template <class T> GPU_DEVICE T highest(void);
template <> GPU_DEVICE_MEMBER float highest<float>(void)
{
    return INFINITE_f32;
}
template <> GPU_DEVICE_MEMBER double highest<double>(void)
{
    return INFINITE_f64;
}
template <> GPU_DEVICE_MEMBER int64_t highest<int64_t>(void)
{
    return INT64_MAX;
}

template <class T> struct most {
    struct state {
        T extreme;
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &p)
    {
        return {p.mode & MOST_LEAST      ? highest<T>()
                : p.mode & MOST_ABSOLUTE ? (T)0
                                         : lowest<T>()};
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t,
                                       const gpu_reduction &p)
    {
        if (p.mode & MOST_ABSOLUTE)
            x = x < 0 ? -x : x;
        if (before(x, s.extreme, p.mode))
            s.extreme = x;
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &p)
    {
        if (before(t.extreme, s.extreme, p.mode))
            s.extreme = t.extreme;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        put(p, 0, to[0], s.extreme);
    }
};

/* The greatest or least element, and its first position. */
template <class T> struct extreme {
    struct state {
        T value;
        int64_t at; /* -1: none yet */
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &)
    {
        return {0, -1};
    }
    static GPU_DEVICE_MEMBER void take_at(state &s, T x, int64_t at,
                                          uint32_t mode)
    {
        if (s.at < 0 || before(x, s.value, mode) ||
            (!before(s.value, x, mode) && at < s.at)) {
            s.value = x;
            s.at = at;
        }
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t at,
                                       const gpu_reduction &p)
    {
        take_at(s, x, (int64_t)at, p.mode);
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &p)
    {
        if (t.at >= 0)
            take_at(s, t.value, t.at, p.mode);
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        if (p.noutputs > 1)
            put(p, 0, to[0], s.value);
        put(p, p.noutputs > 1, to[p.noutputs > 1], s.at);
    }
};

template <class T> struct truth {
    struct state {
        int64_t count;
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &)
    {
        return {0};
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t,
                                       const gpu_reduction &)
    {
        s.count += x != 0;
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        s.count += t.count;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        int64_t all = s.count == (int64_t)p.count, any = s.count > 0;

        put(p, 0, to[0],
            p.mode == TRUTH_ALL   ? all
            : p.mode == TRUTH_ANY ? any
                                  : s.count);
    }
};

template <class T> struct norms {
    struct state {
        double total;
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &)
    {
        return {0};
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t,
                                       const gpu_reduction &p)
    {
        double y = (double)x;

        y = y < 0 ? -y : y;
        s.total += p.mode == NORM_1   ? y
                   : p.mode == NORM_2 ? y * y
                                      : pow(y, p.argument);
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        s.total += t.total;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        put(p, 0, to[0],
            p.mode == NORM_1   ? s.total
            : p.mode == NORM_2 ? sqrt(s.total)
                               : pow(s.total, 1 / p.argument));
    }
};

GPU_DEVICE float exp_of(float x)
{
    return exp_f32(x);
}
GPU_DEVICE double exp_of(double x)
{
    return exp(x);
}
GPU_DEVICE double exp_of(int64_t x)
{
    return exp((double)x);
}

template <class T> struct logsumexp {
    struct state {
        T greatest;
        double total; /* of exp(x - greatest) */
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &)
    {
        return {lowest<T>(), 0};
    }
    static GPU_DEVICE_MEMBER void add(state &s, T x, double total)
    {
        if (total == 0)
            return;
        if (x == s.greatest || s.total == 0) {
            s.total += total;
            s.greatest = s.total == total ? x : s.greatest;
        } else if (x > s.greatest) {
            s.total = s.total * exp_of(s.greatest - x) + total;
            s.greatest = x;
        } else {
            s.total += total * exp_of(x - s.greatest);
        }
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t,
                                       const gpu_reduction &)
    {
        /* -inf adds nothing; NaN makes the total NaN. */
        if (x != lowest<T>())
            add(s, x, 1);
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        add(s, t.greatest, t.total);
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        put(p, 0, to[0],
            s.total == 0 ? -INFINITE_f64 : (double)s.greatest + log(s.total));
    }
};

/* Welford's mean and sum of squares, merged by the formula of Chan, Golub and
 * LeVeque. */
template <class T> struct moments {
    struct state {
        double count, mean, squares;
    };
    static GPU_DEVICE_MEMBER state first(const gpu_reduction &)
    {
        return {0, 0, 0};
    }
    static GPU_DEVICE_MEMBER void take(state &s, T x, uint64_t,
                                       const gpu_reduction &)
    {
        double d = (double)x - s.mean;

        s.count += 1;
        s.mean += d / s.count;
        s.squares += d * ((double)x - s.mean);
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        double n = s.count + t.count, d = t.mean - s.mean;

        if (t.count == 0)
            return;
        s.mean += d * (t.count / n);
        s.squares += t.squares + d * d * (s.count * (t.count / n));
        s.count = n;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        double n = (double)p.count - p.argument;
        double variance = p.count > 0 ? s.squares / (n > 0 ? n : 0) : NOT_f64;

        put(p, 0, to[0], p.mode == MOMENTS_STD ? sqrt(variance) : variance);
        if (p.noutputs > 1)
            put(p, 1, to[1], p.count > 0 ? s.mean : NOT_f64);
    }
};

/* ------------------------------------------------------------- elements -- */

/* An element stored as M and computed as T; if M is void, by its dtype. */
template <class M, class T> struct element {
    static GPU_DEVICE_MEMBER T at(const gpu_reduction &, const char *from)
    {
        return (T)gpu_load(*(const M *)from);
    }
};
template <> struct element<void, double> {
    static GPU_DEVICE_MEMBER double at(const gpu_reduction &p, const char *from)
    {
        return gpu_read_f64(from, p.from_dtype);
    }
};
template <> struct element<void, float> {
    static GPU_DEVICE_MEMBER float at(const gpu_reduction &p, const char *from)
    {
        return (float)gpu_read_f64(from, p.from_dtype);
    }
};
template <> struct element<void, int64_t> {
    static GPU_DEVICE_MEMBER int64_t at(const gpu_reduction &p,
                                        const char *from)
    {
        return gpu_read_i64(from, p.from_dtype);
    }
};

/* The offsets of output `i` and of its first element. */
struct offsets {
    int64_t to[2], from;
};

/* The next index of `rest`, and removes it; in 32 or 64 bits. */
GPU_DEVICE int64_t index_of(uint64_t &rest, gpu_divisor narrow, int64_t size,
                            uint32_t wide)
{
    uint64_t before = rest;

    if (wide) {
        rest = before / (uint64_t)size;
        return (int64_t)(before - rest * (uint64_t)size);
    }
    rest = gpu_divide((uint32_t)before, narrow);
    return (uint32_t)before - (uint32_t)rest * narrow.value;
}

GPU_DEVICE offsets offsets_of(const gpu_reduction &p, uint64_t i)
{
    offsets at = {{0, 0}, 0};

    for (uint32_t d = 0; d < p.nkept; d++) {
        int64_t k = index_of(i, p.kept[d], p.kept_sizes[d], p.wide_outputs);

        at.to[0] += k * p.to_strides[0][d];
        at.to[1] += k * p.to_strides[1][d];
        at.from += k * p.from_strides[d];
    }
    return at;
}

/* The rest is the index of the last dimension, so that a single reduced
 * dimension needs no division. */
GPU_DEVICE int64_t along_of(const gpu_reduction &p, uint64_t i)
{
    int64_t offset = 0;

    for (uint32_t d = 0; d + 1 < p.nreduced; d++)
        offset += index_of(i, p.reduced[d], p.reduced_sizes[d], p.wide_count) *
                  p.along[d];
    return p.nreduced > 0 ? offset + (int64_t)i * p.along[p.nreduced - 1] : 0;
}

/* Takes the elements from `first` to before `stop`, `step` apart. */
template <class R, class M, class T>
GPU_DEVICE void take_some(typename R::state &s, const gpu_reduction &p,
                          int64_t from, uint64_t first, uint64_t stop,
                          uint32_t step)
{
    const char *at = (const char *)p.from + from;

    if (p.from != 0 && p.nreduced == 1) { /* keeps several loads in flight */
#pragma unroll 4
        for (uint64_t i = first; i < stop; i += step)
            R::take(s, element<M, T>::at(p, at + (int64_t)i * p.along[0]), i,
                    p);
        return;
    }
    for (uint64_t i = first; i < stop; i += step)
        R::take(s,
                element<M, T>::at(p, p.from == 0 ? (const char *)&p.number
                                                 : at + along_of(p, i)),
                i, p);
}

/* Merges the states of `lanes` adjacent threads into the first. */
template <class R>
GPU_DEVICE void merge_lanes(typename R::state *states,
                            const typename R::state &s, uint32_t lanes,
                            const gpu_reduction &p)
{
    uint32_t t = gpu_thread.x;

    states[t] = s;
    gpu_barrier();
    for (uint32_t half = lanes / 2; half > 0; half /= 2) {
        if (t % lanes < half)
            R::merge(states[t], states[t + half], p);
        gpu_barrier();
    }
}

template <class R>
GPU_DEVICE void end(const typename R::state &s, const gpu_reduction &p,
                    uint64_t output, uint64_t chunk, const int64_t *to)
{
    if (p.chunks > 1)
        ((typename R::state *)p.partial)[output * p.chunks + chunk] = s;
    else
        R::finish(s, p, to);
}

/* An item is an output and a chunk. */
template <class R, class M, class T>
GPU_DEVICE void rows(const gpu_reduction &p)
{
    GPU_SHARED typename R::state states[GPU_ALL];
    uint32_t t = gpu_thread.x, lane = t % p.lanes, side = GPU_ALL / p.lanes;
    uint64_t items = p.outputs * p.chunks;

    for (uint64_t first = (uint64_t)gpu_block.x * side; first < items;
         first += (uint64_t)gpu_grid.x * side) {
        uint64_t item = first + t / p.lanes;
        bool present = item < items;
        uint64_t output = (present ? item : first) / p.chunks;
        uint64_t chunk = (present ? item : first) % p.chunks;
        uint64_t begin = chunk * p.chunk, stop = begin + p.chunk;
        offsets at = offsets_of(p, output);
        typename R::state s = R::first(p);

        if (stop > p.count)
            stop = p.count;
        take_some<R, M, T>(s, p, at.from, begin + lane, present ? stop : 0,
                           p.lanes);
        merge_lanes<R>(states, s, p.lanes, p);
        if (lane == 0 && present)
            end<R>(states[t], p, output, chunk, at.to);
        gpu_barrier();
    }
}

template <class R, class M, class T>
GPU_DEVICE void columns(const gpu_reduction &p)
{
    GPU_SHARED typename R::state states[GPU_ALL];
    uint32_t side = GPU_ALL / p.lanes, column = gpu_thread.x % side;
    uint32_t lane = gpu_thread.x / side;
    uint64_t chunk = gpu_block.y;
    uint64_t begin = chunk * p.chunk, stop = begin + p.chunk;

    if (stop > p.count)
        stop = p.count;
    for (uint64_t first = (uint64_t)gpu_block.x * side; first < p.outputs;
         first += (uint64_t)gpu_grid.x * side) {
        bool present = first + column < p.outputs;
        uint64_t output = present ? first + column : first;
        offsets at = offsets_of(p, output);
        typename R::state s = R::first(p);

        take_some<R, M, T>(s, p, at.from, begin + lane, present ? stop : 0,
                           p.lanes);
        if (p.lanes > 1) {
            states[gpu_thread.x] = s;
            gpu_barrier();
            for (uint32_t k = 1; lane == 0 && k < p.lanes; k++)
                R::merge(s, states[column + k * side], p);
            gpu_barrier();
        }
        if (lane == 0 && present)
            end<R>(s, p, output, chunk, at.to);
    }
}

template <class R> GPU_DEVICE void together(const gpu_reduction &p)
{
    enum { SIDE = GPU_ALL / GPU_TEAM };
    GPU_SHARED typename R::state states[GPU_ALL];
    uint32_t t = gpu_thread.x, lane = t % GPU_TEAM;

    for (uint64_t first = (uint64_t)gpu_block.x * SIDE; first < p.outputs;
         first += (uint64_t)gpu_grid.x * SIDE) {
        uint64_t output = first + t / GPU_TEAM;
        bool present = output < p.outputs;
        const typename R::state *s =
            (const typename R::state *)p.partial + output * p.chunks;
        typename R::state all = R::first(p);

        for (uint32_t k = lane; present && k < p.chunks; k += GPU_TEAM)
            R::merge(all, s[k], p);
        merge_lanes<R>(states, all, GPU_TEAM, p);
        if (lane == 0 && present)
            R::finish(states[t], p, offsets_of(p, output).to);
        gpu_barrier();
    }
}

#define REDUCE(name, R, suffix, M, T)                                    \
    GPU_KERNEL_COOPERATIVE(red_rows_##name##_##suffix, gpu_reduction)    \
    {                                                                    \
        rows<R<T>, M, T>(p);                                             \
    }                                                                    \
    GPU_KERNEL_COOPERATIVE(red_columns_##name##_##suffix, gpu_reduction) \
    {                                                                    \
        columns<R<T>, M, T>(p);                                          \
    }
#define MERGE(name, R, suffix, T)                                      \
    GPU_KERNEL_COOPERATIVE(red_merge_##name##_##suffix, gpu_reduction) \
    {                                                                  \
        together<R<T>>(p);                                             \
    }
#define FLOATS(name, R)                    \
    REDUCE(name, R, f32, float, float)     \
    REDUCE(name, R, f64, double, double)   \
    REDUCE(name, R, f16, gpu_f16, float)   \
    REDUCE(name, R, bf16, gpu_bf16, float) \
    REDUCE(name, R, any_f32, void, float)  \
    REDUCE(name, R, any_f64, void, double) \
    MERGE(name, R, f32, float)             \
    MERGE(name, R, f64, double)
#define ALL(name, R)                        \
    FLOATS(name, R)                         \
    REDUCE(name, R, any_i64, void, int64_t) \
    MERGE(name, R, i64, int64_t)
ALL(sum, sum)
ALL(prod, prod)
ALL(most, most)
ALL(extreme, extreme)
ALL(truth, truth)
FLOATS(norm, norms)
FLOATS(logsumexp, logsumexp)
FLOATS(moments, moments)
