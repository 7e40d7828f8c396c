# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Prints what configure needs of an installed torch.

    torch_flags.py tag | cppflags | libs
"""

import os
import sys
import sysconfig


def tag(torch):
    """The minor version of torch, and the Python, that a shim serves."""
    version = torch.__version__.split(".")[:2]
    return ".".join(version) + "-" + sys.implementation.cache_tag


def cppflags(torch):
    folder = os.path.join(os.path.dirname(torch.__file__), "include")
    folders = [folder,
               os.path.join(folder, "torch", "csrc", "api", "include"),
               os.path.join(folder, "kineto"),
               sysconfig.get_paths()["include"]]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return " ".join([f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
                    + [f"-isystem {name}" for name in folders])


def libs(torch):
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    return f"-L{folder} -ltorch_python -ltorch_cpu -lc10"


def main():
    try:
        import torch
    except ImportError as error:
        sys.exit(f"it cannot import torch: {error}")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 10):
        sys.exit(f"its torch is {torch.__version__}; 2.10 or later is needed")
    print({"tag": tag, "cppflags": cppflags, "libs": libs}[sys.argv[1]](torch))


main()
