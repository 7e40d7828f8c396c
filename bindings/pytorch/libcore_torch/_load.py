# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Loads the shim that was built for the torch that is imported."""

import ctypes
import glob
import importlib.machinery
import importlib.util
import os
import sys

import torch


def _version():
    return ".".join(torch.__version__.split(".")[:2])


def _tag(version):
    return f"{version}-{sys.implementation.cache_tag}"


def _use_own_libcore(folder):
    """A wheel has libcore and plugins; those that LIBCORE_PLUGIN_PATH names come
    first.  The shim uses the libcore that is loaded."""
    library = os.path.join(folder, "libcore.so.0")
    if not os.path.exists(library):
        return
    ctypes.CDLL(library)
    plugins = os.path.join(folder, "plugins")
    paths = [path for path in os.environ.get("LIBCORE_PLUGIN_PATH", "").split(
        ":") if path not in ("", plugins)]
    os.environ["LIBCORE_PLUGIN_PATH"] = ":".join(paths + [plugins])


def shim():
    """The extension module.  One shim serves one minor version of torch and of
    Python.  LIBCORE_TORCH_SHIM names another folder than the package's, such as
    that of a build."""
    folder = os.environ.get("LIBCORE_TORCH_SHIM",
                            os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(folder, f"shim-{_tag(_version())}.so")
    if not os.path.exists(path):
        built = [os.path.basename(name)[len("shim-"):-len(".so")]
                 for name in sorted(glob.glob(os.path.join(folder, "*.so")))]
        raise ImportError(
            f"libcore_torch was not built for torch and Python "
            f"{_tag(_version())}, but for {', '.join(built) or 'none'}; "
            "configure libcore with --with-torch=PYTHON and this Python")
    _use_own_libcore(folder)
    loader = importlib.machinery.ExtensionFileLoader("libcore_torch._shim",
                                                     path)
    spec = importlib.util.spec_from_loader("libcore_torch._shim", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules["libcore_torch._shim"] = module
    return module
