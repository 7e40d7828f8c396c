/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reduce.cu: reductions.  A reducer is a state, how it takes an element or
 * several (take_all), how it merges a state of later elements, and what it
 * writes at the end.
 *
 * red_rows_…: adjacent threads share an output, or a chunk of its elements.
 * red_columns_…: adjacent threads have adjacent outputs; threads of a block
 * that are 256 / lanes apart may share one. red_merge_…: merges the states of
 * chunks.
 *
 * The order in which elements are combined depends on the sizes and the dtype
 * alone, not on strides, addresses or the launch.  With G the elements in 16
 * bytes (4 for dtypes known at run time only):
 *
 * - rows: of each chunk, G adjacent elements are a group, and thread k of those
 *   that share it takes the groups k, k + lanes, k + 2 lanes, …, a whole group
 *   by take_all, elements of an incomplete last one singly.  States of up to
 *   32 threads are merged by halves (k with k + 16, with k + 8, …), then those
 *   of teams of 32 in turn.
 * - columns: thread k takes the elements k, k + lanes, …, a batch of them at a
 *   time by take_all, what is left singly.  States are merged by halves.
 * - chunks: thread k of merge_lanes merges the chunks k, k + merge_lanes, …,
 *   then threads are merged as for rows.
 *
 * An address that is not a multiple of 16, or strides, only change how a group
 * is loaded. */

#include "block.h"

/* The groups of elements that a thread loads before it uses the first: four,
 * or one if a reducer or a conversion would be repeated in much code. */
enum { FULL_BATCH = 4 };

/* gpu_reduction.mode, for each reducer. */
enum { SUM_PLAIN, SUM_MEAN, SUM_WITHOUT_NAN };
enum { MOST_GREATEST, MOST_LEAST, MOST_ABSOLUTE = 2 };
enum { TRUTH_ANY, TRUTH_ALL, TRUTH_COUNT };
enum { NORM_1, NORM_2 };
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

/* Reducers whose take_all takes elements in turn. */
template <class R, class T> struct in_turn {
    enum { BATCH = FULL_BATCH };
    template <class S, int N>
    static GPU_DEVICE_MEMBER void take_all(S &s, const T (&x)[N], uint64_t at,
                                           uint64_t step,
                                           const gpu_reduction &p)
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            R::take(s, x[j], at + (uint64_t)j * step, p);
    }
};

GPU_DEVICE double mean_of(double total, double n)
{
    return total / n;
}
GPU_DEVICE int64_t mean_of(int64_t total, int64_t n)
{
    return n != 0 ? total / n : 0;
}

template <class T> struct sum : in_turn<sum<T>, T> {
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

template <class T> struct prod : in_turn<prod<T>, T> {
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

template <class T> struct most : in_turn<most<T>, T> {
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
    enum { BATCH = FULL_BATCH };
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
    template <int N>
    static GPU_DEVICE_MEMBER void take_all(state &s, const T (&x)[N],
                                           uint64_t at, uint64_t step,
                                           const gpu_reduction &p)
    {
        T best = x[0];
        uint32_t which = 0;

#pragma unroll
        for (int j = 1; j < N; j++)
            if (before(x[j], best, p.mode)) {
                best = x[j];
                which = (uint32_t)j;
            }
        take_at(s, best, (int64_t)(at + which * step), p.mode);
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
        if (p.noutputs > 1) {
            put(p, 0, to[0], s.value);
            put(p, 1, to[1], s.at);
        } else {
            put(p, 0, to[0], s.at);
        }
    }
};

template <class T> struct truth {
    enum { BATCH = FULL_BATCH };
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
    template <int N>
    static GPU_DEVICE_MEMBER void take_all(state &s, const T (&x)[N], uint64_t,
                                           uint64_t, const gpu_reduction &)
    {
        uint32_t count = 0;

#pragma unroll
        for (int j = 0; j < N; j++)
            count += x[j] != 0;
        s.count += count;
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

template <class T> struct norms : in_turn<norms<T>, T> {
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

        s.total += p.mode == NORM_2 ? y * y : y < 0 ? -y : y;
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        s.total += t.total;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        put(p, 0, to[0], p.mode == NORM_2 ? sqrt(s.total) : s.total);
    }
};

/* Not inlined for each element of a batch. */
GPU_NOINLINE double power_of(double x, double order)
{
    return pow(x < 0 ? -x : x, order);
}

/* Norms of any other order. */
template <class T> struct power : in_turn<power<T>, T> {
    enum { BATCH = 1 };
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
        s.total += power_of((double)x, p.argument);
    }
    static GPU_DEVICE_MEMBER void merge(state &s, const state &t,
                                        const gpu_reduction &)
    {
        s.total += t.total;
    }
    static GPU_DEVICE_MEMBER void finish(const state &s, const gpu_reduction &p,
                                         const int64_t *to)
    {
        put(p, 0, to[0], pow(s.total, 1 / p.argument));
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
    enum { BATCH = 1 };
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
    template <int N>
    static GPU_DEVICE_MEMBER void take_all(state &s, const T (&x)[N], uint64_t,
                                           uint64_t, const gpu_reduction &)
    {
        T greatest = x[0];
        double total = 0;

#pragma unroll
        for (int j = 1; j < N; j++)
            greatest = x[j] > greatest ? x[j] : greatest;
#pragma unroll
        for (int j = 0; j < N; j++)
            if (x[j] != lowest<T>())
                total += x[j] == greatest ? 1 : (double)exp_of(x[j] - greatest);
        add(s, greatest, total);
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
    enum { BATCH = FULL_BATCH };
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
    /* The moments of the elements, by their mean; then merged. */
    template <int N>
    static GPU_DEVICE_MEMBER void take_all(state &s, const T (&x)[N], uint64_t,
                                           uint64_t, const gpu_reduction &p)
    {
        state some = {N, 0, 0};

#pragma unroll
        for (int j = 0; j < N; j++)
            some.mean += (double)x[j];
        some.mean *= 1.0 / N; /* exact: N is a power of two */
#pragma unroll
        for (int j = 0; j < N; j++) {
            double d = (double)x[j] - some.mean;

            some.squares += d * d;
        }
        merge(s, some, p);
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

/* N elements at an address that is a multiple of 16, or of their size if that
 * is less. */
template <class M, class T, int N>
GPU_DEVICE void load_adjacent(const char *at, T (&x)[N])
{
    enum { MOST = 16 / sizeof(M), EACH = N < MOST ? N : MOST };

#pragma unroll
    for (int k = 0; k < N; k += EACH) {
        gpu_vector<M, EACH> some = ((const gpu_vector<M, EACH> *)at)[k / EACH];

#pragma unroll
        for (int j = 0; j < EACH; j++)
            x[k + j] = (T)some.at[j];
    }
}

/* Elements stored as M and computed as T; if M is void, by their dtype.  A
 * group has GROUP of them. */
template <class M, class T> struct element {
    enum { GROUP = 16 / sizeof(M), BATCH = FULL_BATCH };
    typedef gpu_vector<M, GROUP> group;

    static GPU_DEVICE_MEMBER T at(const gpu_reduction &, const char *from)
    {
        return (T)gpu_load(*(const M *)from);
    }
    static GPU_DEVICE_MEMBER group load(const gpu_reduction &, const char *from)
    {
        return *(const group *)from;
    }
    static GPU_DEVICE_MEMBER T of(const group &some, int j)
    {
        return (T)gpu_load(some.at[j]);
    }
};

template <class T> struct numbers {
    T at[4];
};
/* By a dtype that is known at run time only. */
template <class T> struct any_element {
    enum { GROUP = 4, BATCH = 1 };
    typedef numbers<T> group;

    static GPU_DEVICE_MEMBER group load(const gpu_reduction &p,
                                        const char *from)
    {
        group some;

        switch (p.from_dtype) {
        case GPU_F64:
            load_adjacent<double>(from, some.at);
            break;
        case GPU_F32:
            load_adjacent<float>(from, some.at);
            break;
        case GPU_I64:
            load_adjacent<int64_t>(from, some.at);
            break;
        case GPU_I32:
            load_adjacent<int32_t>(from, some.at);
            break;
        case GPU_I16:
            load_adjacent<int16_t>(from, some.at);
            break;
        case GPU_I8:
            load_adjacent<int8_t>(from, some.at);
            break;
        case GPU_U8:
        case GPU_BOOL:
            load_adjacent<uint8_t>(from, some.at);
            break;
        default: /* f16 and bf16 */
#pragma unroll
            for (int j = 0; j < GROUP; j++)
                some.at[j] = (T)gpu_read_f64(from + 2 * j, p.from_dtype);
            break;
        }
        return some;
    }
    static GPU_DEVICE_MEMBER T of(const group &some, int j)
    {
        return some.at[j];
    }
};
template <> struct element<void, double> : any_element<double> {
    static GPU_DEVICE_MEMBER double at(const gpu_reduction &p, const char *from)
    {
        return gpu_read_f64(from, p.from_dtype);
    }
};
template <> struct element<void, float> : any_element<float> {
    static GPU_DEVICE_MEMBER float at(const gpu_reduction &p, const char *from)
    {
        return (float)gpu_read_f64(from, p.from_dtype);
    }
};
template <> struct element<void, int64_t> : any_element<int64_t> {
    static GPU_DEVICE_MEMBER int64_t at(const gpu_reduction &p,
                                        const char *from)
    {
        return gpu_read_i64(from, p.from_dtype);
    }
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

/* The offset of the first element of output `i`. */
GPU_DEVICE int64_t from_of(const gpu_reduction &p, uint64_t i)
{
    int64_t from = 0;

#pragma unroll 1
    for (uint32_t d = 0; d < p.nkept; d++)
        from += index_of(i, p.kept[d], p.kept_sizes[d], p.wide_outputs) *
                p.from_strides[d];
    return from;
}

template <class R>
GPU_DEVICE void finish(const typename R::state &s, const gpu_reduction &p,
                       uint64_t output)
{
    int64_t to[2] = {0, 0};

#pragma unroll 1
    for (uint32_t d = 0; d < p.nkept; d++) {
        int64_t k =
            index_of(output, p.kept[d], p.kept_sizes[d], p.wide_outputs);

        to[0] += k * p.to_strides[0][d];
        to[1] += k * p.to_strides[1][d];
    }
    R::finish(s, p, to);
}

/* The rest is the index of the last dimension, so that a single reduced
 * dimension needs no division. */
GPU_DEVICE int64_t along_of(const gpu_reduction &p, uint64_t i)
{
    int64_t offset = 0;

    if (p.nreduced == 1)
        return (int64_t)i * p.along[0];
#pragma unroll 1
    for (uint32_t d = 0; d + 1 < p.nreduced; d++)
        offset += index_of(i, p.reduced[d], p.reduced_sizes[d], p.wide_count) *
                  p.along[d];
    return p.nreduced > 0 ? offset + (int64_t)i * p.along[p.nreduced - 1] : 0;
}

template <class R, class E> struct batch_of {
    enum { value = (int)R::BATCH < (int)E::BATCH ? (int)R::BATCH : E::BATCH };
};

/* The number that stands for all elements, if there is one. */
template <class M, class T> GPU_DEVICE T number_of(const gpu_reduction &p)
{
    uint64_t bits = p.number;

    return p.from == 0 ? element<M, T>::at(p, (const char *)&bits) : 0;
}

template <class M, class T>
GPU_DEVICE T element_at(const gpu_reduction &p, const char *from, uint64_t i,
                        T number)
{
    return p.from == 0 ? number : element<M, T>::at(p, from + along_of(p, i));
}

/* Takes the groups `first`, first + lanes, … of the elements from `begin` to
 * before `stop`. */
template <class R, class M, class T>
GPU_DEVICE void take_groups(typename R::state &s, const gpu_reduction &p,
                            const char *from, uint64_t begin, uint64_t stop,
                            uint32_t first)
{
    typedef element<M, T> E;
    enum { GROUP = E::GROUP, BATCH = batch_of<R, E>::value };
    uint64_t whole = (stop - begin) / GROUP, k = first;
    uint32_t step = p.lanes;
    T number = number_of<M, T>(p);

    if (p.vectors) { /* by elements: dimension 0 has whole groups */
        for (; k < whole; k += (uint64_t)BATCH * step) {
            typename E::group some[BATCH];

#pragma unroll
            for (int u = 0; u < BATCH; u++)
                if (k + (uint32_t)u * step < whole)
                    some[u] = E::load(
                        p, from + along_of(p, begin + (k + (uint32_t)u * step) *
                                                          GROUP));
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                if (k + (uint32_t)u * step < whole) {
                    T x[GROUP];

#pragma unroll
                    for (int j = 0; j < GROUP; j++)
                        x[j] = E::of(some[u], j);
                    R::take_all(s, x, begin + (k + (uint32_t)u * step) * GROUP,
                                1, p);
                }
        }
    } else {
        for (; k < whole; k += step) {
            uint64_t at = begin + k * GROUP;
            T x[GROUP];

#pragma unroll
            for (int j = 0; j < GROUP; j++)
                x[j] = element_at<M, T>(p, from, at + (uint32_t)j, number);
            R::take_all(s, x, at, 1, p);
        }
    }
    if ((whole & (step - 1)) != first)
        return;
    for (uint64_t at = begin + whole * GROUP; at < stop; at++)
        R::take(s, element_at<M, T>(p, from, at, number), at, p);
}

/* A state of another thread, word by word. */
template <class S> GPU_DEVICE S state_of(const S &s, uint32_t by)
{
    uint32_t words[sizeof(S) / 4];
    S other;

    static_assert(sizeof(S) % 4 == 0, "states consist of words");
    memcpy(words, &s, sizeof s);
#pragma unroll
    for (uint32_t k = 0; k < sizeof(S) / 4; k++)
        words[k] = gpu_shuffle_down(words[k], by);
    memcpy(&other, words, sizeof s);
    return other;
}

/* Merges the states of `lanes` adjacent threads into the first, in registers;
 * those of a block through `teams`. */
template <class R>
GPU_DEVICE void merge_lanes(typename R::state *teams, typename R::state &s,
                            uint32_t lanes, const gpu_reduction &p)
{
    uint32_t t = gpu_thread.x;

    for (uint32_t by = (lanes < GPU_TEAM ? lanes : GPU_TEAM) / 2; by > 0;
         by /= 2) {
        typename R::state other = state_of(s, by);

        R::merge(s, other, p); /* of use to the first `by` threads only */
    }
    if (lanes <= GPU_TEAM)
        return;
    if (t % GPU_TEAM == 0)
        teams[t / GPU_TEAM] = s;
    gpu_barrier();
    if (t % lanes == 0)
        for (uint32_t k = 1; k < lanes / GPU_TEAM; k++)
            R::merge(s, teams[t / GPU_TEAM + k], p);
    gpu_barrier();
}

template <class R>
GPU_DEVICE void end(const typename R::state &s, const gpu_reduction &p,
                    uint64_t output, uint64_t chunk)
{
    if (p.chunks > 1)
        ((typename R::state *)p.partial)[output * p.chunks + chunk] = s;
    else
        finish<R>(s, p, output);
}

/* An item is an output and a chunk. */
template <class R, class M, class T>
GPU_DEVICE void rows(const gpu_reduction &p)
{
    GPU_SHARED typename R::state teams[GPU_ALL / GPU_TEAM];
    uint32_t lane = gpu_thread.x % p.lanes, side = GPU_ALL / p.lanes;
    uint64_t items = p.outputs * p.chunks;

    for (uint64_t first = (uint64_t)gpu_block.x * side; first < items;
         first += (uint64_t)gpu_grid.x * side) {
        uint64_t item = first + gpu_thread.x / p.lanes, output, begin, stop;
        bool present = item < items;
        int64_t chunk = 0;
        typename R::state s = R::first(p);

        output = present ? item : first;
        if (p.chunks > 1)
            output =
                (uint64_t)gpu_split((int64_t)output, (int64_t)p.chunks, &chunk);
        begin = (uint64_t)chunk * p.chunk;
        stop = begin + p.chunk;
        stop = !present ? begin : stop > p.count ? p.count : stop;
        take_groups<R, M, T>(s, p, (const char *)p.from + from_of(p, output),
                             begin, stop, lane);
        merge_lanes<R>(teams, s, p.lanes, p);
        if (lane == 0 && present)
            end<R>(s, p, output, (uint64_t)chunk);
    }
}

/* Takes elements `first`, first + lanes, … before `stop` of N adjacent
 * outputs. */
template <class R, class M, class T, int N>
GPU_DEVICE void take_columns(typename R::state (&s)[N], const gpu_reduction &p,
                             const char *from, uint64_t first, uint64_t stop)
{
    typedef element<M, T> E;
    enum { BATCH = batch_of<R, E>::value };
    uint64_t r = first;
    uint32_t step = p.lanes;
    T number = number_of<M, T>(p);

    for (; r + (uint64_t)(BATCH - 1) * step < stop;
         r += (uint64_t)BATCH * step) {
        T x[N][BATCH];

        if (N > 1) {
            typename E::group some[BATCH];

#pragma unroll
            for (int u = 0; u < BATCH; u++)
                some[u] =
                    E::load(p, from + along_of(p, r + (uint32_t)u * step));
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int u = 0; u < BATCH; u++)
                    x[j][u] = E::of(some[u], j);
        } else {
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                x[0][u] =
                    element_at<M, T>(p, from, r + (uint32_t)u * step, number);
        }
#pragma unroll
        for (int j = 0; j < N; j++)
            R::take_all(s[j], x[j], r, step, p);
    }
    for (; r < stop; r += step) {
        if (N > 1) {
            typename E::group some = E::load(p, from + along_of(p, r));

#pragma unroll
            for (int j = 0; j < N; j++)
                R::take(s[j], E::of(some, j), r, p);
        } else {
            R::take(s[0], element_at<M, T>(p, from, r, number), r, p);
        }
    }
}

/* N adjacent outputs for each thread. */
template <class R, class M, class T, int N>
GPU_DEVICE void columns_of(const gpu_reduction &p, typename R::state *states)
{
    uint32_t side = GPU_ALL / p.lanes, column = gpu_thread.x % side;
    uint32_t t = gpu_thread.x, lane = t / side;
    uint64_t begin = (uint64_t)gpu_block.y * p.chunk, stop = begin + p.chunk;
    uint64_t groups = p.outputs / N;

    if (stop > p.count)
        stop = p.count;
    for (uint64_t first = (uint64_t)gpu_block.x * side; first < groups;
         first += (uint64_t)gpu_grid.x * side) {
        bool present = first + column < groups;
        uint64_t output = (present ? first + column : first) * N;
        typename R::state s[N], mine;

#pragma unroll
        for (int j = 0; j < N; j++)
            s[j] = R::first(p);
        take_columns<R, M, T, N>(s, p,
                                 (const char *)p.from + from_of(p, output),
                                 begin + lane, present ? stop : begin);
        mine = s[0];
        if (p.lanes > 1) {
#pragma unroll
            for (int j = 0; j < N; j++) { /* lane j gets output j */
                states[t] = s[j];
                gpu_barrier();
                for (uint32_t half = p.lanes / 2; half > 0; half /= 2) {
                    if (lane < half)
                        R::merge(states[t], states[t + half * side], p);
                    gpu_barrier();
                }
                if (lane == (uint32_t)j)
                    mine = states[column];
                gpu_barrier();
            }
        }
        if (lane < N && present)
            end<R>(mine, p, output + lane, gpu_block.y);
    }
}

template <class R, class M, class T>
GPU_DEVICE void columns(const gpu_reduction &p)
{
    GPU_SHARED typename R::state states[GPU_ALL];

    if (p.vectors)
        columns_of<R, M, T, element<M, T>::GROUP>(p, states);
    else
        columns_of<R, M, T, 1>(p, states);
}

template <class R> GPU_DEVICE void together(const gpu_reduction &p)
{
    GPU_SHARED typename R::state teams[GPU_ALL / GPU_TEAM];
    uint32_t step = p.merge_lanes, side = GPU_ALL / step;
    uint32_t lane = gpu_thread.x % step;

    for (uint64_t first = (uint64_t)gpu_block.x * side; first < p.outputs;
         first += (uint64_t)gpu_grid.x * side) {
        uint64_t output = first + gpu_thread.x / step;
        bool present = output < p.outputs;
        const typename R::state *from =
            (const typename R::state *)p.partial + output * p.chunks;
        typename R::state s = R::first(p);

        for (uint32_t k = lane; present && k < p.chunks;
             k += FULL_BATCH * step) {
            typename R::state some[FULL_BATCH];

#pragma unroll
            for (uint32_t u = 0; u < FULL_BATCH; u++)
                if (k + u * step < p.chunks)
                    some[u] = from[k + u * step];
#pragma unroll
            for (uint32_t u = 0; u < FULL_BATCH; u++)
                if (k + u * step < p.chunks)
                    R::merge(s, some[u], p);
        }
        merge_lanes<R>(teams, s, step, p);
        if (lane == 0 && present)
            finish<R>(s, p, output);
    }
}

/* A reducer with a large state needs more than 128 registers. */
#define GPU_COLUMN_BLOCKS(R) (sizeof(R::state) > 16 ? 1 : 2)
#define REDUCE(name, R, suffix, M, T)                                 \
    GPU_KERNEL_RESIDENT(red_rows_##name##_##suffix, gpu_reduction, 3) \
    {                                                                 \
        rows<R<T>, M, T>(p);                                          \
    }                                                                 \
    GPU_KERNEL_RESIDENT(red_columns_##name##_##suffix, gpu_reduction, \
                        GPU_COLUMN_BLOCKS(R<T>))                      \
    {                                                                 \
        columns<R<T>, M, T>(p);                                       \
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
FLOATS(power, power)
FLOATS(logsumexp, logsumexp)
FLOATS(moments, moments)
