/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Learning-rate schedules as functions of the step. */

#include <libcore/optim.h>

#include <math.h>

double core_schedule_warmup(double rate, uint64_t warmup, uint64_t step)
{
    if (step >= warmup)
        return rate;
    return rate * ((double)(step + 1) / (double)(warmup + 1));
}

double core_schedule_cosine(double rate, double least, uint64_t warmup,
                            uint64_t total, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    double done;

    if (step < warmup)
        return core_schedule_warmup(rate, warmup, step);
    if (step >= total)
        return least;
    done = (double)(step - warmup) / (double)(total - warmup);
    return least + (rate - least) * 0.5 * (1 + cos(pi * done));
}

double core_schedule_linear(double rate, double least, uint64_t warmup,
                            uint64_t total, uint64_t step)
{
    double done;

    if (step < warmup)
        return core_schedule_warmup(rate, warmup, step);
    if (step >= total)
        return least;
    done = (double)(step - warmup) / (double)(total - warmup);
    return least + (rate - least) * (1 - done);
}

double core_schedule_decay(double rate, double factor, uint64_t every,
                           uint64_t step)
{
    return every ? rate * pow(factor, (double)(step / every)) : rate;
}
