/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* network_results.h: what PyTorch 2.15.0 computes for the networks of networks.h,
 * by record-networks.py. */

#ifndef TESTS_SUPPORT_NETWORK_RESULTS_H
#define TESTS_SUPPORT_NETWORK_RESULTS_H

static const struct {
    const char *name;
    double lead; /* the least of an argmax's greatest element, relative; 1: no
                    argmax */
    int count;
    double values[16];
} network_results[] = {
    {"gpt2",
     0.0882,
     11,
     {-0.0717328712, 0.110485107, 1.43396986, 0.0168138817, -0.926276922,
      -1.09506512, 0.80710268, -0.561543524, 0.812552214, 0.0756035596,
      0.138839781}},
    {"llama",
     0.0145,
     11,
     {-0.26011616, -0.555606186, 0.539951563, -1.33082557, 0.745126307,
      -0.0802262276, -0.395206392, -0.456984937, -1.89725339, -0.552837551,
      0.462469757}},
    {"resnet18",
     1,
     10,
     {0.0825097188, 0.0700334162, 0.121568091, 0.701406837, 0.0244820062,
      0.131758407, 0.0707350448, 0.146416798, 0.619592428, 0.0314972922}},
    {"crepe", 0.0239, 3, {43.8587761, 43.6843796, 43.7764816}},
    {"speaker", 1, 6, {0, 0, 0, 0.101257809, 0.419630319, 0.902029574}},
    {"silero5", 1, 3, {0.452373028, 0.451659381, 0.45145306}},
    {"silero4", 1, 2, {0.569457471, 0.567819834}},
};

#endif
