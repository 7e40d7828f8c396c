/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

// Performance anchor: libtorch measured on this machine.  Own code.
// usage: peer_torch            -> all timings, "name value unit" lines
//        peer_torch micro|autograd|elem|blas|train|networks   -> one section
//        valgrind --tool=callgrind --instr-atstart=no ... peer_torch count
#include <torch/torch.h>
#include <torch/library.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <valgrind/callgrind.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <vector>

using at::Tensor;
static double now_s()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
static int g_reps = 15, g_t0 = 1, g_t1 = 2;
static std::string cpu_capability()
{
#if TORCH_VERSION_MAJOR >= 2
    return at::get_cpu_capability();
#else
    const char *e = getenv("ATEN_CPU_CAPABILITY");
    return e ? std::string("env:") + e : std::string("default");
#endif
}
// seconds per call of f: warm-up, calibrate to >= min_t per repeat, median
template <class F> static double med(F &&f, double min_t = 0.02, int reps = 0)
{
    if (!reps)
        reps = g_reps;
    f();
    f();
    long n = 1;
    double t;
    for (;;) {
        double s = now_s();
        for (long i = 0; i < n; i++)
            f();
        t = now_s() - s;
        if (t >= min_t)
            break;
        n = t < min_t / 20 ? n * 10 : (long)(n * (min_t / t) * 1.1) + 1;
    }
    std::vector<double> v;
    for (int r = 0; r < reps; r++) {
        double s = now_s();
        for (long i = 0; i < n; i++)
            f();
        v.push_back((now_s() - s) / n);
    }
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}
static void out(const std::string &n, double v, const char *u)
{
    printf("%-44s %12.3f %s\n", n.c_str(), v, u);
    fflush(stdout);
}
template <class F> static void ns(const std::string &n, F &&f)
{
    out(n, med(f) * 1e9, "ns");
}

// ---- custom no-op ops, to isolate the dispatcher -------------------------
static Tensor noop_cpu(const Tensor &a, const Tensor &)
{
    return a;
}
static void noop_void_cpu(const Tensor &) {}
static void noop_mut_boxed(const c10::OperatorHandle &, torch::jit::Stack *s)
{
    s->pop_back();
}
static void vd_autograd(c10::DispatchKeySet ks, const Tensor &a)
{
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("peer::void_ad", "")
                         .typed<void(const Tensor &)>();
    op.redispatch(ks & c10::after_autograd_keyset, a);
}
static void vd_autograd_guard(const Tensor &a)
{
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("peer::void_adg", "")
                         .typed<void(const Tensor &)>();
    at::AutoDispatchBelowADInplaceOrView g;
    op.call(a);
}
TORCH_LIBRARY(peer, m)
{
    m.def("noop(Tensor a, Tensor b) -> Tensor");
    m.def("void1(Tensor a) -> ()");
    m.def("void_ad(Tensor a) -> ()");
    m.def("void_adg(Tensor a) -> ()");
    m.def("void_boxed(Tensor a) -> ()");
}
TORCH_LIBRARY_IMPL(peer, CPU, m)
{
    m.impl("noop", noop_cpu);
    m.impl("void1", noop_void_cpu);
    m.impl("void_ad", noop_void_cpu);
    m.impl("void_adg", noop_void_cpu);
    m.impl("void_boxed",
           torch::CppFunction::makeFromBoxedFunction<&noop_mut_boxed>());
}
TORCH_LIBRARY_IMPL(peer, Autograd, m)
{
    m.impl("void_ad", vd_autograd);
    m.impl("void_adg", vd_autograd_guard);
}
template <class S>
static c10::TypedOperatorHandle<S> H(const char *n, const char *ov = "")
{
    return c10::Dispatcher::singleton().findSchemaOrThrow(n, ov).typed<S>();
}

// ---- threads -------------------------------------------------------------
static void threads(int n)
{
    at::set_num_threads(n);
    auto f = (void (*)(int))dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
    if (f)
        f(n);
}
static std::string sfx(int t)
{
    return "/t" + std::to_string(t);
}

// ---- sections ------------------------------------------------------------
static void micro()
{
    Tensor a = at::ones({1}), b = at::ones({1}), o = at::empty({1});
    Tensor ga = at::ones({1}).set_requires_grad(true),
           gb = at::ones({1}).set_requires_grad(true);
    ns("add1.plain", [&] { Tensor r = at::add(a, b); });
    {
        at::NoGradGuard g;
        ns("add1.nograd_reqgrad_inputs", [&] { Tensor r = at::add(ga, gb); });
    }
    {
        c10::InferenceMode g;
        Tensor ia = at::ones({1}), ib = at::ones({1}), io = at::empty({1});
        ns("add1.inference_mode", [&] { Tensor r = at::add(ia, ib); });
        ns("add1_out.inference_mode", [&] { at::add_out(io, ia, ib); });
        ns("add1_.inplace.inference_mode", [&] { ia.add_(ib); });
    }
    ns("add1.grad_records_graph", [&] { Tensor r = at::add(ga, gb); });
    ns("add1.grad_one_input", [&] { Tensor r = at::add(ga, b); });
    ns("mul1.plain", [&] { Tensor r = at::mul(a, b); });
    ns("mul1.grad_saves_both", [&] { Tensor r = at::mul(ga, gb); });
    ns("add1_out.prealloc", [&] { at::add_out(o, a, b); });
    ns("add1_.inplace", [&] { o.add_(b); });
    ns("add1.scalar_rhs", [&] { Tensor r = at::add(a, 1.0); });
    ns("relu1.plain", [&] { Tensor r = at::relu(a); });
    ns("exp1.plain", [&] { Tensor r = at::exp(a); });
    ns("sum1.plain", [&] { Tensor r = at::sum(a); });
    ns("mm1x1.plain", [A = at::ones({1, 1})] { Tensor r = at::mm(A, A); });
    auto addop =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
    {
        torch::jit::Stack st;
        st.reserve(8);
        ns("add1.callBoxed", [&] {
            st.clear();
            st.emplace_back(a);
            st.emplace_back(b);
            st.emplace_back(at::Scalar(1));
            addop.callBoxed(&st);
        });
        auto ao = H<Tensor &(const Tensor &, const Tensor &, const at::Scalar &,
                             Tensor &)>("aten::add", "out");
        ns("add1_out.callBoxed", [&] {
            st.clear();
            st.emplace_back(a);
            st.emplace_back(b);
            st.emplace_back(at::Scalar(1));
            st.emplace_back(o);
            ao.callBoxed(&st);
        });
    }
    {
        auto add =
            H<Tensor(const Tensor &, const Tensor &, const at::Scalar &)>(
                "aten::add", "Tensor");
        ns("add1.redispatch_CPU_directly", [&] {
            Tensor r = add.redispatch(
                c10::DispatchKeySet(c10::DispatchKey::CPU), a, b, 1);
        });
    }
    // dispatcher in isolation
    auto v1 = H<void(const Tensor &)>("peer::void1");
    auto n2 = H<Tensor(const Tensor &, const Tensor &)>("peer::noop");
    auto vad = H<void(const Tensor &)>("peer::void_ad");
    auto vadg = H<void(const Tensor &)>("peer::void_adg");
    auto vbx = H<void(const Tensor &)>("peer::void_boxed");
    ns("disp.void1.unboxed", [&] { v1.call(a); });
    ns("disp.noop_returns_tensor", [&] { Tensor r = n2.call(a, b); });
    ns("disp.autograd_kernel_then_redispatch", [&] { vad.call(a); });
    ns("disp.autograd_kernel_guard_then_call", [&] { vadg.call(a); });
    ns("disp.unboxed_call_to_boxed_kernel", [&] { vbx.call(a); });
    {
        torch::jit::Stack st;
        st.reserve(4);
        c10::OperatorHandle h = v1;
        ns("disp.void1.callBoxed", [&] {
            st.clear();
            st.emplace_back(a);
            h.callBoxed(&st);
        });
        c10::OperatorHandle hb = vbx;
        ns("disp.void_boxed.callBoxed", [&] {
            st.clear();
            st.emplace_back(a);
            hb.callBoxed(&st);
        });
    }
    ns("disp.lookup_findSchema_by_name", [&] {
        auto h = c10::Dispatcher::singleton().findSchema({"peer::void1", ""});
        if (!h)
            abort();
    });
    ns("disp.plain_C_call_same_kernel", [&] {
        void (*volatile p)(const Tensor &) = noop_void_cpu;
        p(a);
    });
    // guards, refcount, tensor objects
    ns("guard.NoGradGuard", [&] {
        at::NoGradGuard g;
        asm volatile("" ::: "memory");
    });
    ns("guard.InferenceMode", [&] {
        c10::InferenceMode g;
        asm volatile("" ::: "memory");
    });
    ns("guard.AutoDispatchBelowADInplaceOrView", [&] {
        at::AutoDispatchBelowADInplaceOrView g;
        asm volatile("" ::: "memory");
    });
    ns("tensor.copy_handle", [&] {
        Tensor r = a;
        asm volatile("" ::"r"(&r) : "memory");
    });
    ns("tensor.empty1", [&] { Tensor r = at::empty({1}); });
    ns("tensor.empty_1MiB", [&] { Tensor r = at::empty({262144}); });
    ns("tensor.empty_64MiB", [&] { Tensor r = at::empty({16 << 20}); });
    ns("tensor.empty_strided_2d", [&] {
        Tensor r = at::empty_strided({4, 4}, {4, 1});
    });
    ns("tensor.zeros1", [&] { Tensor r = at::zeros({1}); });
    ns("tensor.raw_aligned_alloc_64B", [&] {
        void *p = nullptr;
        if (posix_memalign(&p, 64, 64))
            abort();
        asm volatile("" ::"r"(p) : "memory");
        free(p);
    });
    ns("tensor.detach", [&] { Tensor r = ga.detach(); });
    Tensor M = at::ones({64, 64});
    Tensor GM = at::ones({64, 64}).set_requires_grad(true);
    ns("view.transpose", [&] { Tensor r = M.transpose(0, 1); });
    ns("view.narrow", [&] { Tensor r = M.narrow(0, 3, 7); });
    ns("view.slice", [&] { Tensor r = M.slice(0, 3, 10); });
    ns("view.select", [&] { Tensor r = M.select(0, 3); });
    ns("view.view", [&] { Tensor r = M.view({4096}); });
    ns("view.as_strided", [&] { Tensor r = M.as_strided({8, 8}, {64, 1}); });
    ns("view.transpose_grad", [&] { Tensor r = GM.transpose(0, 1); });
    ns("view.narrow_grad", [&] { Tensor r = GM.narrow(0, 3, 7); });
    {
        c10::InferenceMode g;
        Tensor IM = at::ones({64, 64});
        ns("view.transpose_inference", [&] { Tensor r = IM.transpose(0, 1); });
        ns("view.narrow_inference", [&] { Tensor r = IM.narrow(0, 3, 7); });
    }
    // thread-pool launch
    if (g_t1 < 2)
        return;
    at::set_num_threads(2);
    ns("parallel_for_empty/t2", [&] {
        at::parallel_for(0, 2, 1, [](int64_t, int64_t) {
            asm volatile("" ::: "memory");
        });
    });
    at::set_num_threads(1);
}

static void ad()
{
    const int K = 1000;
    Tensor c = at::full({1}, 1.0f), d = at::full({1}, 0.5f);
    Tensor x = at::ones({1}).set_requires_grad(true);
    auto chain = [&](const Tensor &s) {
        Tensor y = s;
        for (int i = 0; i < K; i++) {
            y = at::mul(y, c);
            y = at::add(y, d);
        }
        return y;
    };
    // forward (graph destroyed between repeats counted separately)
    {
        std::vector<double> f, bk, de, fb;
        for (int r = 0; r < 60; r++) {
            double t0 = now_s();
            Tensor y = chain(x);
            double t1 = now_s();
            y.backward();
            double t2 = now_s();
            y.reset();
            double t3 = now_s();
            x.mutable_grad().reset();
            if (r >= 10) {
                f.push_back(t1 - t0);
                bk.push_back(t2 - t1);
                de.push_back(t3 - t2);
                fb.push_back(t3 - t0);
            }
        }
        auto m = [](std::vector<double> &v) {
            std::sort(v.begin(), v.end());
            return v[v.size() / 2];
        };
        out("ad.chain_fwd_per_op", m(f) / (2 * K) * 1e9, "ns");
        out("ad.chain_bwd_per_node", m(bk) / (2 * K) * 1e9, "ns");
        out("ad.chain_free_per_node", m(de) / (2 * K) * 1e9, "ns");
        out("ad.chain_total_per_op", m(fb) / (2 * K) * 1e9, "ns");
    }
    {
        at::NoGradGuard g;
        out("ad.chain_fwd_nograd_per_op",
            med([&] { Tensor y = chain(x); }) / (2 * K) * 1e9, "ns");
    }
    auto timed_bwd = [&](const char *name, double nodes,
                         std::function<std::vector<Tensor>()> mk,
                         std::function<void()> reset, bool retain = false) {
        std::vector<double> v;
        for (int r = 0; r < 60; r++) {
            auto roots = mk();
            std::vector<Tensor> g(roots.size(), at::ones({1}));
            double t = now_s();
            torch::autograd::backward(roots, g, retain);
            t = now_s() - t;
            reset();
            if (r >= 10)
                v.push_back(t);
        }
        std::sort(v.begin(), v.end());
        out(name, v[v.size() / 2] / nodes * 1e9, "ns");
    };
    auto rx = [&] { x.mutable_grad().reset(); };
    timed_bwd(
        "ad.mul_only_chain_bwd_per_node", K,
        [&] {
            Tensor y = x;
            for (int i = 0; i < K; i++)
                y = at::mul(y, c);
            return std::vector<Tensor>{y};
        },
        rx);
    timed_bwd(
        "ad.add_only_chain_bwd_per_node", K,
        [&] {
            Tensor y = x;
            for (int i = 0; i < K; i++)
                y = at::add(y, d);
            return std::vector<Tensor>{y};
        },
        rx);
    timed_bwd(
        "ad.neg_chain_bwd_per_node", K,
        [&] {
            Tensor y = x;
            for (int i = 0; i < K; i++)
                y = at::neg(y);
            return std::vector<Tensor>{y};
        },
        rx);
    timed_bwd(
        "ad.fanin2_add(y,y)_bwd_per_node", K,
        [&] {
            Tensor y = x;
            for (int i = 0; i < K; i++)
                y = at::add(y, y);
            return std::vector<Tensor>{y};
        },
        rx);
    timed_bwd(
        "ad.fanin2_mul(y,y)_bwd_per_node", K,
        [&] {
            Tensor y = x;
            for (int i = 0; i < K; i++)
                y = at::mul(y, y);
            return std::vector<Tensor>{y};
        },
        rx);
    timed_bwd(
        "ad.single_node_backward_call", 1,
        [&] { return std::vector<Tensor>{at::mul(x, c)}; }, rx);
    // many leaves
    std::vector<Tensor> W;
    for (int i = 0; i < K; i++)
        W.push_back(at::ones({1}).set_requires_grad(true));
    auto rw = [&] {
        for (auto &w : W)
            w.mutable_grad().reset();
    };
    auto mulroots = [&] {
        std::vector<Tensor> y;
        for (auto &w : W)
            y.push_back(at::mul(w, c));
        return y;
    };
    timed_bwd("ad.leaf_mul+accgrad_steal_per_leaf", K, mulroots, rw);
    {
        for (auto &w : W)
            w.mutable_grad() = at::zeros({1});
        timed_bwd("ad.leaf_mul+accgrad_inplace_per_leaf", K, mulroots, [] {});
        rw();
    }
    // AccumulateGrad node alone
    {
        auto acc = torch::autograd::impl::grad_accumulator(x);
        at::NoGradGuard g;
        Tensor gr = at::ones({1});
        x.mutable_grad() = at::zeros({1});
        ns("ad.accgrad_apply_inplace", [&] {
            torch::autograd::variable_list v{gr};
            (*acc)(std::move(v));
        });
        x.mutable_grad().reset();
        ns("ad.accgrad_apply_clone", [&] {
            torch::autograd::variable_list v{gr};
            (*acc)(std::move(v));
            x.mutable_grad().reset();
        });
        ns("ad.accgrad_apply_steal+empty1", [&] {
            torch::autograd::variable_list v;
            v.push_back(at::empty({1}));
            (*acc)(std::move(v));
            x.mutable_grad().reset();
        });
        x.mutable_grad().reset();
    }
    // torch::autograd::grad with inputs
    {
        std::vector<double> v;
        for (int r = 0; r < 40; r++) {
            Tensor y = chain(x);
            double t = now_s();
            auto gg = torch::autograd::grad({y}, {x});
            t = now_s() - t;
            if (r > 5)
                v.push_back(t);
        }
        std::sort(v.begin(), v.end());
        out("ad.chain_grad()_per_node", v[v.size() / 2] / (2 * K) * 1e9, "ns");
    }
    // create_graph
    {
        std::vector<double> v;
        for (int r = 0; r < 40; r++) {
            Tensor y = chain(x);
            double t = now_s();
            auto gg = torch::autograd::grad({y}, {x}, {}, true, true);
            t = now_s() - t;
            if (r > 5)
                v.push_back(t);
        }
        std::sort(v.begin(), v.end());
        out("ad.chain_grad_create_graph_per_node",
            v[v.size() / 2] / (2 * K) * 1e9, "ns");
    }
}

static void elem()
{
    const int64_t N = 16 << 20;
    for (int t = g_t0; t <= g_t1; t++) {
        threads(t);
        at::NoGradGuard ng;
        g_reps = 11;
        auto gb = [&](const std::string &n, double bytes,
                      const std::function<void()> &f) {
            double s = med(f, 0.05);
            out(n + sfx(t), bytes / s * 1e-9, "GB/s");
        };
        {
            Tensor a = at::rand({N}), b = at::rand({N}), o = at::empty({N});
            gb("add_out_16M_f32", 12.0 * N, [&] { at::add_out(o, a, b); });
            gb("add_alloc_16M_f32", 12.0 * N,
               [&] { Tensor r = at::add(a, b); });
            gb("mul__16M_f32", 12.0 * N, [&] { o.mul_(b); });
            gb("copy_16M_f32", 8.0 * N, [&] { o.copy_(a); });
            gb("exp_out_16M_f32", 8.0 * N, [&] { at::exp_out(o, a); });
            gb("gelu_out_16M_f32", 8.0 * N, [&] { at::gelu_out(o, a); });
            gb("gelu_tanh_out_16M_f32", 8.0 * N,
               [&] { at::gelu_out(o, a, "tanh"); });
            gb("sigmoid_out_16M_f32", 8.0 * N, [&] { at::sigmoid_out(o, a); });
            gb("tanh_out_16M_f32", 8.0 * N, [&] { at::tanh_out(o, a); });
            gb("sum_16M_f32", 4.0 * N, [&] { Tensor r = at::sum(a); });
            gb("max_16M_f32", 4.0 * N, [&] { Tensor r = at::max(a); });
        }
        {
            Tensor a = at::rand({N}).to(at::kBFloat16),
                   b = at::rand({N}).to(at::kBFloat16),
                   o = at::empty({N}, at::kBFloat16), f = at::empty({N});
            gb("add_out_16M_bf16", 6.0 * N, [&] { at::add_out(o, a, b); });
            gb("cast_bf16_to_f32_16M", 6.0 * N, [&] { f.copy_(a); });
            gb("cast_f32_to_bf16_16M", 6.0 * N, [&] { o.copy_(f); });
        }
        { // cache-resident: 64K floats = 256 KiB each
            int64_t n = 65536;
            Tensor a = at::rand({n}), b = at::rand({n}), o = at::empty({n});
            gb("add_out_64K_f32_cached", 12.0 * n,
               [&] { at::add_out(o, a, b); });
            gb("exp_out_64K_f32_cached", 8.0 * n, [&] { at::exp_out(o, a); });
            gb("gelu_out_64K_f32_cached", 8.0 * n, [&] { at::gelu_out(o, a); });
        }
        {
            Tensor a = at::randn({4096, 1024}), o = at::empty({4096, 1024}),
                   w = at::ones({1024}), b = at::zeros({1024}),
                   bias = at::rand({1024});
            double e = 4096.0 * 1024;
            gb("softmax_out_4096x1024_f32", 8 * e,
               [&] { at::softmax_out(o, a, -1); });
            gb("log_softmax_4096x1024_f32", 8 * e,
               [&] { Tensor r = at::log_softmax(a, -1); });
            gb("layer_norm_4096x1024_f32", 8 * e,
               [&] { Tensor r = at::layer_norm(a, {1024}, w, b); });
            gb("sum_dim1_4096x1024_f32", 4 * e,
               [&] { Tensor r = at::sum(a, at::IntArrayRef{1}); });
            gb("sum_dim0_4096x1024_f32", 4 * e,
               [&] { Tensor r = at::sum(a, at::IntArrayRef{0}); });
            gb("add_bcast_row_4096x1024_f32", 8 * e,
               [&] { at::add_out(o, a, bias); });
        }
        {
            Tensor a = at::randn({4096, 4096}), o = at::empty({4096, 4096});
            double e = 4096.0 * 4096;
            gb("transpose_copy_4096x4096_f32", 8 * e, [&] { o.copy_(a.t()); });
            gb("add_out_transposed_4096_f32", 12 * e,
               [&] { at::add_out(o, a, a.t()); });
        }
    }
    threads(1);
    g_reps = 15;
}

static void blas()
{
    for (int t = g_t0; t <= g_t1; t++) {
        threads(t);
        at::NoGradGuard ng;
        g_reps = 11;
        auto gf = [&](const std::string &n, double fl,
                      const std::function<void()> &f) {
            double s = med(f, 0.1);
            out(n + sfx(t), fl / s * 1e-9, "GFLOP/s");
        };
        for (int64_t n : {64, 256, 512, 1024, 2048}) {
            Tensor a = at::randn({n, n}), b = at::randn({n, n}),
                   o = at::empty({n, n});
            gf("mm_out_" + std::to_string(n) + "^3_f32", 2.0 * n * n * n,
               [&] { at::mm_out(o, a, b); });
            if (n == 1024) {
                gf("mm_out_1024^3_f32_Bt", 2.0 * n * n * n,
                   [&] { at::mm_out(o, a, b.t()); });
                Tensor ab = a.to(at::kBFloat16), bb = b.to(at::kBFloat16),
                       ob = o.to(at::kBFloat16);
                gf("mm_out_1024^3_bf16", 2.0 * n * n * n,
                   [&] { at::mm_out(ob, ab, bb); });
                Tensor ad = a.to(at::kDouble), bd = b.to(at::kDouble),
                       od = o.to(at::kDouble);
                gf("mm_out_1024^3_f64", 2.0 * n * n * n,
                   [&] { at::mm_out(od, ad, bd); });
            }
        }
        {
            Tensor a = at::randn({1024, 1024}), x = at::randn({1024}),
                   o = at::empty({1024});
            gf("mv_out_1024_f32", 2.0 * 1024 * 1024,
               [&] { at::mv_out(o, a, x); });
        }
        {
            Tensor a = at::randn({64, 128, 128}), b = at::randn({64, 128, 128}),
                   o = at::empty({64, 128, 128});
            gf("bmm_out_64x128^3_f32", 64 * 2.0 * 128 * 128 * 128,
               [&] { at::bmm_out(o, a, b); });
        }
        {
            Tensor x = at::randn({128, 784}), w = at::randn({512, 784}),
                   b = at::randn({512});
            gf("linear_128x784x512_f32", 2.0 * 128 * 784 * 512,
               [&] { Tensor r = at::linear(x, w, b); });
        }
        {
            Tensor x = at::randn({32, 64, 56, 56}),
                   w = at::randn({64, 64, 3, 3}), b = at::randn({64});
            double fl = 2.0 * 32 * 64 * 64 * 9 * 56 * 56;
            gf("conv2d_32x64x56x56_k3p1_64_f32", fl,
               [&] { Tensor r = at::conv2d(x, w, b, 1, 1); });
            Tensor xc = x.contiguous(at::MemoryFormat::ChannelsLast),
                   wc = w.contiguous(at::MemoryFormat::ChannelsLast);
            gf("conv2d_same_channels_last_f32", fl,
               [&] { Tensor r = at::conv2d(xc, wc, b, 1, 1); });
            at::globalContext().setUserEnabledMkldnn(false);
            gf("conv2d_same_no_onednn_f32", fl,
               [&] { Tensor r = at::conv2d(x, w, b, 1, 1); });
            at::globalContext().setUserEnabledMkldnn(true);
            at::AutoGradMode eg(true);
            Tensor wg = w.clone().set_requires_grad(true),
                   xg = x.clone().set_requires_grad(true),
                   bg = b.clone().set_requires_grad(true);
            Tensor gy = at::ones({32, 64, 56, 56});
            gf("conv2d_same_fwd+bwd_f32", 3 * fl, [&] {
                Tensor r = at::conv2d(xg, wg, bg, 1, 1);
                r.backward(gy);
                wg.mutable_grad().reset();
                xg.mutable_grad().reset();
                bg.mutable_grad().reset();
            });
        }
    }
    threads(1);
    g_reps = 15;
}

static Tensor P(at::IntArrayRef s, double sc)
{
    Tensor t = at::randn(s) * sc;
    return t.detach().set_requires_grad(true);
}
static void train()
{
    for (int t = g_t0; t <= g_t1; t++) {
        threads(t);
        g_reps = 15;
        at::manual_seed(1);
        {
            std::vector<Tensor> p{P({512, 784}, .03), P({512}, .0),
                                  P({256, 512}, .04), P({256}, 0.),
                                  P({10, 256}, .06),  P({10}, 0.)};
            Tensor x = at::randn({128, 784}),
                   y = at::randint(10, {128}, at::kLong);
            double f_ms = 0, b_ms = 0, u_ms = 0;
            long cnt = 0;
            auto step = [&] {
                double t0 = now_s();
                Tensor h = at::relu(at::linear(x, p[0], p[1]));
                h = at::relu(at::linear(h, p[2], p[3]));
                Tensor loss =
                    at::cross_entropy_loss(at::linear(h, p[4], p[5]), y);
                double t1 = now_s();
                loss.backward();
                double t2 = now_s();
                {
                    at::NoGradGuard g;
                    for (auto &q : p) {
                        q.add_(q.grad(), -0.01);
                        q.mutable_grad().reset();
                    }
                }
                double t3 = now_s();
                f_ms += t1 - t0;
                b_ms += t2 - t1;
                u_ms += t3 - t2;
                cnt++;
            };
            double s = med(step, 0.1);
            out("mlp_step_784-512-256-10_b128" + sfx(t), s * 1e3, "ms");
            f_ms = b_ms = u_ms = cnt = 0;
            for (int i = 0; i < 100; i++)
                step();
            out("mlp_fwd" + sfx(t), f_ms / cnt * 1e3, "ms");
            out("mlp_bwd" + sfx(t), b_ms / cnt * 1e3, "ms");
            out("mlp_sgd" + sfx(t), u_ms / cnt * 1e3, "ms");
            // overhead-dominated: tiny MLP, batch 1
            std::vector<Tensor> q{P({16, 8}, .3), P({16}, 0.), P({4, 16}, .3),
                                  P({4}, 0.)};
            Tensor x1 = at::randn({1, 8}), y1 = at::randint(4, {1}, at::kLong);
            s = med(
                [&] {
                    Tensor loss = at::cross_entropy_loss(
                        at::linear(at::relu(at::linear(x1, q[0], q[1])), q[2],
                                   q[3]),
                        y1);
                    loss.backward();
                    at::NoGradGuard g;
                    for (auto &w : q) {
                        w.add_(w.grad(), -0.01);
                        w.mutable_grad().reset();
                    }
                },
                0.05);
            out("mlp_tiny_8-16-4_b1_step" + sfx(t), s * 1e6, "us");
        }
        {
            const int64_t B = 8, T = 128, C = 256, Hn = 8, D = C / Hn;
            Tensor g1 = at::ones({C}).set_requires_grad(true),
                   b1 = at::zeros({C}).set_requires_grad(true),
                   g2 = at::ones({C}).set_requires_grad(true),
                   b2 = at::zeros({C}).set_requires_grad(true);
            Tensor wq = P({3 * C, C}, .06), bq = P({3 * C}, 0),
                   wo = P({C, C}, .06), bo = P({C}, 0), w1 = P({4 * C, C}, .06),
                   c1 = P({4 * C}, 0), w2 = P({C, 4 * C}, .03), c2 = P({C}, 0);
            std::vector<Tensor> ps{g1, b1, g2, b2, wq, bq,
                                   wo, bo, w1, c1, w2, c2};
            Tensor x = at::randn({B, T, C}).set_requires_grad(true),
                   gy = at::randn({B, T, C});
            auto fwd = [&] {
                Tensor h = at::layer_norm(x, {C}, g1, b1);
                auto qkv = at::linear(h, wq, bq)
                               .view({B, T, 3, Hn, D})
                               .permute({2, 0, 3, 1, 4});
                Tensor q = qkv.select(0, 0), k = qkv.select(0, 1),
                       v = qkv.select(0, 2);
                Tensor a = at::softmax(at::matmul(q, k.transpose(-2, -1)) *
                                           (1.0 / std::sqrt((double)D)),
                                       -1);
                Tensor o = at::matmul(a, v).transpose(1, 2).reshape({B, T, C});
                Tensor y = x + at::linear(o, wo, bo);
                Tensor m =
                    at::linear(at::gelu(at::linear(
                                   at::layer_norm(y, {C}, g2, b2), w1, c1)),
                               w2, c2);
                return y + m;
            };
            out("xfmr_block_fwd+bwd_B8T128C256H8" + sfx(t),
                med(
                    [&] {
                        fwd().backward(gy);
                        for (auto &q : ps)
                            q.mutable_grad().reset();
                        x.mutable_grad().reset();
                    },
                    0.1) *
                    1e3,
                "ms");
            out("xfmr_block_fwd_grad" + sfx(t),
                med([&] { Tensor y = fwd(); }, 0.1) * 1e3, "ms");
            {
                at::NoGradGuard g;
                out("xfmr_block_fwd_nograd" + sfx(t),
                    med([&] { Tensor y = fwd(); }, 0.1) * 1e3, "ms");
            }
        }
        for (int64_t B : {1, 8}) { // an LSTM of three layers
            const int64_t T = 100, C = 128, L = 3;
            std::vector<Tensor> w;
            for (int64_t i = 0; i < 4 * L; i++)
                w.push_back((i % 4 < 2 ? at::randn({4 * C, C}) * .05
                                       : at::randn({4 * C}) * .05)
                                .detach()
                                .set_requires_grad(true));
            Tensor x = at::randn({T, B, C}), gy = at::randn({T, B, C});
            Tensor h = at::zeros({L, B, C});
            auto fwd = [&] {
                return std::get<0>(at::lstm(x, {h, h}, w, true, L, 0., true,
                                            false, false));
            };
            std::string shape = "_T100B" + std::to_string(B) + "C128_3";
            out("lstm_fwd+bwd" + shape + sfx(t),
                med(
                    [&] {
                        fwd().backward(gy);
                        for (auto &q : w)
                            q.mutable_grad().reset();
                    },
                    0.1) *
                    1e3,
                "ms");
            at::NoGradGuard g;
            out("lstm_fwd_nograd" + shape + sfx(t),
                med([&] { Tensor y = fwd(); }, 0.1) * 1e3, "ms");
        }
    }
    threads(1);
}

// ---- whole networks --------------------------------------------------------
using Parameters = std::vector<Tensor>;
// rows of fwd(training): with gradients, then without
template <class F>
static void network(const std::string &name, const std::string &shape, int t,
                    Parameters &ps, const Tensor &gy, F &&fwd)
{
    out(name + "_fwd+bwd_" + shape + sfx(t),
        med(
            [&] {
                fwd(true).backward(gy);
                for (auto &q : ps)
                    q.mutable_grad().reset();
            },
            0.1) *
            1e3,
        "ms");
    at::NoGradGuard g;
    out(name + "_fwd_" + shape + sfx(t),
        med([&] { Tensor y = fwd(false); }, 0.1) * 1e3, "ms");
}
struct ConvNorm { // a convolution without bias and a batch norm
    Tensor w, g, b, mean, var;
    int64_t stride, pad;
    ConvNorm(Parameters &ps, int64_t in, int64_t out, int64_t k, int64_t s,
             int64_t p)
        : w(P({out, in, k, k}, 1 / std::sqrt((double)(in * k * k)))),
          g(at::ones({out}).set_requires_grad(true)), b(P({out}, 0)),
          mean(at::zeros({out})), var(at::ones({out})), stride(s), pad(p)
    {
        ps.insert(ps.end(), {w, g, b});
    }
    Tensor operator()(const Tensor &x, bool training) const
    {
        return at::batch_norm(at::conv2d(x, w, {}, stride, pad), g, b, mean,
                              var, training, .1, 1e-5, true);
    }
};
static void resnet(int t, int64_t B)
{
    struct Block {
        std::vector<ConvNorm> c; // the third is that of the shortcut
    };
    Parameters ps;
    ConvNorm first(ps, 3, 64, 7, 2, 3);
    std::vector<Block> blocks;
    for (int64_t i = 0, in = 64; i < 8; i++) {
        int64_t o = 64 << i / 2, s = o == in ? 1 : 2;
        Block b{{ConvNorm(ps, in, o, 3, s, 1), ConvNorm(ps, o, o, 3, 1, 1)}};
        if (o != in)
            b.c.emplace_back(ps, in, o, 1, s, 0);
        blocks.push_back(b);
        in = o;
    }
    Tensor w = P({1000, 512}, .04), bias = P({1000}, 0);
    ps.insert(ps.end(), {w, bias});
    Tensor x = at::randn({B, 3, 64, 64}), gy = at::randn({B, 1000});
    network("resnet18", "B" + std::to_string(B) + "_64x64", t, ps, gy,
            [&](bool training) {
                Tensor h = at::max_pool2d(at::relu(first(x, training)), 3, 2,
                                          1);
                for (auto &b : blocks) {
                    Tensor y = b.c[1](at::relu(b.c[0](h, training)), training);
                    h = at::relu(
                        y + (b.c.size() > 2 ? b.c[2](h, training) : h));
                }
                return at::linear(h.mean({2, 3}), w, bias);
            });
}
static void conv1d_net(int t, int64_t B)
{
    Parameters ps{P({258, 1, 256}, .06), P({128, 129, 3}, .05), P({128}, 0),
                  P({64, 128, 3}, .05),  P({64}, 0),            P({64, 64, 3}, .07),
                  P({64}, 0),            P({128, 64, 3}, .07),  P({128}, 0),
                  P({1, 128}, .08),      P({1}, 0)};
    Tensor x = at::randn({B, 1, 4096}), gy = at::randn({B, 1});
    network("conv1d_net", "B" + std::to_string(B) + "_4096", t, ps, gy,
            [&](bool) {
                auto parts = at::conv1d(x, ps[0], {}, 64).chunk(2, 1);
                Tensor h =
                    (parts[0] * parts[0] + parts[1] * parts[1] + 1e-6).sqrt();
                for (int i = 0; i < 4; i++)
                    h = at::relu(at::conv1d(h, ps[1 + 2 * i], ps[2 + 2 * i],
                                            i == 1 || i == 2 ? 2 : 1, 1));
                return at::linear(h.mean({2}), ps[9], ps[10]);
            });
}
#if TORCH_VERSION_MAJOR >= 2
static const int64_t LAYERS = 2, TOKENS = 64, PLACES = 128, HEAD = 64;
static Tensor heads_of(const Tensor &x)
{
    return x.reshape({x.size(0), x.size(1), -1, HEAD}).transpose(1, 2);
}
struct Cache {
    Tensor keys, values;
    int64_t at = 0;
    Tensor attend(const Tensor &q, const Tensor &k, const Tensor &v)
    {
        int64_t n = q.size(2);
        keys.narrow(2, at, n).copy_(k);
        values.narrow(2, at, n).copy_(v);
        return at::scaled_dot_product_attention(
                   q, keys.narrow(2, 0, at + n), values.narrow(2, 0, at + n),
                   {}, 0, n > 1, c10::nullopt, true)
            .transpose(1, 2)
            .flatten(2);
    }
};
template <class F>
static void decoder(const char *name, int t, int64_t B, int64_t C,
                    std::vector<Cache> &caches, F &&run)
{
    std::string b = std::to_string(B);
    Tensor x = at::randn({B, TOKENS, C}), one = at::randn({B, 1, C});
    out(std::string(name) + "_prefill_B" + b + "T" + std::to_string(TOKENS) +
            sfx(t),
        med([&] { Tensor y = run(x); }, 0.1) * 1e3, "ms");
    for (auto &c : caches)
        c.at = TOKENS;
    out(std::string(name) + "_decode_B" + b + sfx(t),
        med([&] { Tensor y = run(one); }, 0.1) * 1e3, "ms");
}
static void decoders(int t, int64_t B)
{
    at::NoGradGuard g;
    auto caches = [&](int64_t heads) {
        std::vector<Cache> c(LAYERS);
        for (auto &k : c)
            k.keys = k.values = at::zeros({B, heads, PLACES, HEAD});
        for (auto &k : c)
            k.values = k.keys.clone();
        return c;
    };
    {
        const int64_t C = 768;
        struct Layer {
            Tensor g1 = at::ones({C}), b1 = at::zeros({C}), g2 = at::ones({C}),
                   b2 = at::zeros({C}), wq = at::randn({3 * C, C}) * .02,
                   bq = at::zeros({3 * C}), wo = at::randn({C, C}) * .02,
                   bo = at::zeros({C}), wu = at::randn({4 * C, C}) * .02,
                   bu = at::zeros({4 * C}), wd = at::randn({C, 4 * C}) * .02,
                   bd = at::zeros({C});
        };
        std::vector<Layer> layers(LAYERS);
        auto c = caches(C / HEAD);
        decoder("gpt2_2layers", t, B, C, c, [&](Tensor x) {
            for (int64_t i = 0; i < LAYERS; i++) {
                Layer &l = layers[i];
                auto qkv = at::linear(at::layer_norm(x, {C}, l.g1, l.b1), l.wq,
                                      l.bq)
                               .chunk(3, -1);
                Tensor y = c[i].attend(heads_of(qkv[0]), heads_of(qkv[1]),
                                       heads_of(qkv[2]));
                x = x + at::linear(y, l.wo, l.bo);
                y = at::gelu(at::linear(at::layer_norm(x, {C}, l.g2, l.b2),
                                        l.wu, l.bu),
                             "tanh");
                x = x + at::linear(y, l.wd, l.bd);
            }
            return x;
        });
    }
    {
        const int64_t C = 1024, I = 2816, K = 256;
        struct Layer {
            Tensor g1 = at::ones({C}), g2 = at::ones({C}),
                   wq = at::randn({C, C}) * .02, wk = at::randn({K, C}) * .02,
                   wv = at::randn({K, C}) * .02, wo = at::randn({C, C}) * .02,
                   wg = at::randn({I, C}) * .02, wu = at::randn({I, C}) * .02,
                   wd = at::randn({C, I}) * .02;
        };
        std::vector<Layer> layers(LAYERS);
        auto c = caches(K / HEAD);
        Tensor angle = at::outer(
            at::arange(PLACES, at::kFloat),
            at::pow(10000., at::arange(HEAD / 2, at::kFloat) * (-2. / HEAD)));
        Tensor cos = angle.cos(), sin = angle.sin();
        auto rotate = [&](const Tensor &x) {
            auto ab = x.chunk(2, -1);
            Tensor s = sin.narrow(0, c[0].at, x.size(2)),
                   k = cos.narrow(0, c[0].at, x.size(2));
            return at::cat({ab[0] * k - ab[1] * s, ab[1] * k + ab[0] * s}, -1);
        };
        decoder("llama_2layers", t, B, C, c, [&](Tensor x) {
            for (int64_t i = 0; i < LAYERS; i++) {
                Layer &l = layers[i];
                Tensor y = at::rms_norm(x, {C}, l.g1, 1e-5);
                y = c[i].attend(rotate(heads_of(at::linear(y, l.wq))),
                                rotate(heads_of(at::linear(y, l.wk))),
                                heads_of(at::linear(y, l.wv)));
                x = x + at::linear(y, l.wo);
                y = at::rms_norm(x, {C}, l.g2, 1e-5);
                y = at::silu(at::linear(y, l.wg)) * at::linear(y, l.wu);
                x = x + at::linear(y, l.wd);
            }
            return x;
        });
    }
}
#else // no scaled_dot_product_attention
static void decoders(int, int64_t)
{
}
#endif
static void networks()
{
    for (int t = g_t0; t <= g_t1; t++) {
        threads(t);
        for (int64_t B : {1, 8}) {
            resnet(t, B);
            conv1d_net(t, B);
            decoders(t, B);
        }
    }
    threads(1);
}

// ---- instruction counts (callgrind, delta of N and 2N) -------------------
template <class F> static void cnt(const char *n, F &&f, long N = 2000)
{
    for (int i = 0; i < 50; i++)
        f();
    char l[128];
    for (int k = 1; k <= 2; k++) {
        snprintf(l, sizeof l, "%s %ld", n, N * k);
        CALLGRIND_ZERO_STATS;
        CALLGRIND_START_INSTRUMENTATION;
        for (long i = 0; i < N * k; i++)
            f();
        CALLGRIND_STOP_INSTRUMENTATION;
        CALLGRIND_DUMP_STATS_AT(l);
    }
}
static void count(const char *only)
{
    auto on = [&](const char *n) { return !only || !strcmp(only, n); };
    Tensor a = at::ones({1}), b = at::ones({1}), o = at::empty({1});
    Tensor ga = at::ones({1}).set_requires_grad(true),
           gb = at::ones({1}).set_requires_grad(true);
    if (on("plain") || on("all"))
        cnt("add1.plain", [&] { Tensor r = at::add(a, b); });
    if (only && strcmp(only, "all"))
        return;
    {
        at::NoGradGuard g;
        cnt("add1.nograd", [&] { Tensor r = at::add(ga, gb); });
    }
    {
        c10::InferenceMode g;
        Tensor ia = at::ones({1}), ib = at::ones({1});
        cnt("add1.inference", [&] { Tensor r = at::add(ia, ib); });
    }
    cnt("add1.grad", [&] { Tensor r = at::add(ga, gb); });
    cnt("mul1.grad", [&] { Tensor r = at::mul(ga, gb); });
    cnt("add1_out.plain", [&] { at::add_out(o, a, b); });
    {
        c10::OperatorHandle h = c10::Dispatcher::singleton().findSchemaOrThrow(
            "aten::add", "Tensor");
        torch::jit::Stack st;
        st.reserve(8);
        cnt("add1.callBoxed", [&] {
            st.clear();
            st.emplace_back(a);
            st.emplace_back(b);
            st.emplace_back(at::Scalar(1));
            h.callBoxed(&st);
        });
    }
    auto v1 = H<void(const Tensor &)>("peer::void1");
    auto vad = H<void(const Tensor &)>("peer::void_ad");
    cnt("disp.void1", [&] { v1.call(a); });
    cnt("disp.autograd_redispatch", [&] { vad.call(a); });
    cnt("tensor.empty1", [&] { Tensor r = at::empty({1}); });
    Tensor M = at::ones({64, 64});
    cnt("view.transpose", [&] { Tensor r = M.transpose(0, 1); });
    cnt("view.narrow", [&] { Tensor r = M.narrow(0, 3, 7); });
    // backward per node: chains of K and 2K, same op, counted around backward only
    Tensor c = at::ones({1}), x = at::ones({1}).set_requires_grad(true);
    auto bw = [&](const char *n, std::function<Tensor(Tensor)> op) {
        for (int w = 0; w < 2; w++) {
            Tensor y = x;
            for (int i = 0; i < 100; i++)
                y = op(y);
            y.backward();
            x.mutable_grad().reset();
        }
        for (int k = 1; k <= 2; k++) {
            Tensor y = x;
            for (int i = 0; i < 2000 * k; i++)
                y = op(y);
            char l[128];
            snprintf(l, sizeof l, "%s %d", n, 2000 * k);
            CALLGRIND_ZERO_STATS;
            CALLGRIND_START_INSTRUMENTATION;
            y.backward();
            CALLGRIND_STOP_INSTRUMENTATION;
            CALLGRIND_DUMP_STATS_AT(l);
            x.mutable_grad().reset();
        }
    };
    bw("bwd.mul", [&](Tensor y) { return at::mul(y, c); });
    bw("bwd.add", [&](Tensor y) { return at::add(y, c); });
    bw("bwd.mul+add", [&](Tensor y) { return at::add(at::mul(y, c), c); });
    bw("bwd.fanin_add(y,y)", [&](Tensor y) { return at::add(y, y); });
    auto acc = torch::autograd::impl::grad_accumulator(x);
    at::NoGradGuard g;
    Tensor gr = at::ones({1});
    x.mutable_grad() = at::zeros({1});
    cnt("accgrad.inplace", [&] {
        torch::autograd::variable_list v{gr};
        (*acc)(std::move(v));
    });
}

int main(int argc, char **argv)
{
    threads(1);
    at::set_num_interop_threads(1);
    const char *s = argc > 1 ? argv[1] : "all";
    if (const char *e = getenv("PEER_T")) {
        g_t0 = e[0] - '0';
        g_t1 = e[strlen(e) - 1] - '0';
    } // "1", "2" or "12"
    if (!strcmp(s, "count")) {
        count(argc > 2 ? argv[2] : "all");
        return 0;
    }
    auto core = (char *(*)())dlsym(RTLD_DEFAULT, "openblas_get_corename");
    auto conf = (char *(*)())dlsym(RTLD_DEFAULT, "openblas_get_config");
    printf("# torch %s  cpu_capability %s  openblas core %s  [%s]\n",
           TORCH_VERSION, cpu_capability().c_str(),
           core ? core() : "?", conf ? conf() : "not openblas");
    auto on = [&](const char *n) { return !strcmp(s, "all") || !strcmp(s, n); };
    if (on("micro"))
        micro();
    if (on("autograd"))
        ad();
    if (on("elem"))
        elem();
    if (on("blas"))
        blas();
    if (on("train"))
        train();
    if (on("networks"))
        networks();
    return 0;
}
