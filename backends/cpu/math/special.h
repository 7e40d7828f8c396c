/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* special.h: special functions in double precision, for the rows of all
 * instruction sets.  gen_kernels.py refers to them by their index in the
 * tables. */

#ifndef CPU_SPECIAL_H
#define CPU_SPECIAL_H

typedef double (*cpu_special_1)(double x);
typedef double (*cpu_special_2)(double a, double b);

extern const cpu_special_1 cpu_special_unary[];
extern const cpu_special_2 cpu_special_binary[];

double cpu_digamma(double x);
double cpu_polygamma(double n, double x);
double cpu_zeta(double s, double q);
double cpu_igamma(double a, double x);
double cpu_igammac(double a, double x);
double cpu_erfinv(double y);
double cpu_erfcx(double x);
double cpu_log_ndtr(double x);
double cpu_ndtri(double p);

double cpu_bessel_i0(double x);
double cpu_bessel_i0e(double x);
double cpu_bessel_i1(double x);
double cpu_bessel_i1e(double x);
double cpu_bessel_k0(double x);
double cpu_bessel_k0e(double x);
double cpu_bessel_k1(double x);
double cpu_bessel_k1e(double x);
double cpu_airy_ai(double x);
double cpu_spherical_j0(double x);

double cpu_chebyshev_t(double x, double n);
double cpu_chebyshev_u(double x, double n);
double cpu_chebyshev_v(double x, double n);
double cpu_chebyshev_w(double x, double n);
double cpu_shifted_chebyshev_t(double x, double n);
double cpu_shifted_chebyshev_u(double x, double n);
double cpu_shifted_chebyshev_v(double x, double n);
double cpu_shifted_chebyshev_w(double x, double n);
double cpu_hermite_h(double x, double n);
double cpu_hermite_he(double x, double n);
double cpu_laguerre_l(double x, double n);
double cpu_legendre_p(double x, double n);

#endif
