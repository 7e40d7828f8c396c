# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Packs libcore_torch, with libcore, plugins and shims, as a wheel.

    wheel.py BUILD FOLDER [--python PYTHON]... [--plugin FILE]...

BUILD: a build folder that was configured with --with-torch.  FOLDER: where the
wheel is written.  --python: a Python whose torch gets a shim, too, which is built
in BUILD; a wheel serves all versions that it has shims for.  --plugin: a file of a
plugin; by default those of the build folder.  Prints the name of the wheel.
"""

import argparse
import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

METADATA = """Metadata-Version: 2.1
Name: libcore_torch
Version: {version}
Summary: libcore's devices as devices of PyTorch
License: Apache-2.0
Requires-Python: >=3.10
License-File: LICENSE
Requires-Dist: torch{versions}
"""

WHEEL = """Wheel-Version: 1.0
Generator: libcore
Root-Is-Purelib: false
Tag: {tag}
"""


def ask(python, what):
    """What bindings/pytorch/torch_flags.py says of the torch of a Python."""
    return subprocess.run(
        [python, os.path.join(HERE, "torch_flags.py"), what], check=True,
        stdout=subprocess.PIPE, text=True).stdout.strip()


def build_shim(build, python):
    """Builds the shim for the torch of a Python."""
    subprocess.run(["make", "-s", "-C", build, "torch-shim"]
                   + [f"TORCH_{name.upper()}={ask(python, name)}"
                      for name in ("tag", "cppflags", "libs")],
                   check=True, stdout=sys.stderr)


def shims_of(build, pythons):
    """The shims that are current: that of the configured torch, and those of the
    Pythons; others in the build folder may be of older sources."""
    with open(os.path.join(build, "Makefile"), encoding="utf-8") as file:
        tags = re.findall(r"^TORCH_TAG = (\S+)", file.read(), re.M)
    if not tags:
        sys.exit(f"{build} has no shim; configure it with --with-torch=PYTHON")
    subprocess.run(["make", "-s", "-C", build, "torch-shim"], check=True,
                   stdout=sys.stderr)
    for python in pythons:
        build_shim(build, python)
        tags.append(ask(python, "tag"))
    return sorted(f"{build}/bindings/pytorch/libcore_torch/shim-{tag}.so"
                  for tag in set(tags))


def versions_of(shims):
    """The versions of torch that have shims, as pip's conditions: from the first
    to the last, without those between that have none."""
    minors = sorted({tuple(map(int, re.search(r"shim-(\d+)\.(\d+)-",
                                              name).groups()))
                     for name in shims})
    (major, first), (_, last) = minors[0], minors[-1]
    missing = [f",!={major}.{minor}.*" for minor in range(first, last)
               if (major, minor) not in minors]
    return f">={major}.{first},<{major}.{last + 1}" + "".join(missing)


def version_of(build):
    with open(os.path.join(build, "libcore.pc"), encoding="utf-8") as file:
        return re.search(r"^Version: (\S+)", file.read(), re.M)[1]


def plugins_of(build):
    found = sorted(glob.glob(f"{build}/.libs/core_*.so")
                   + glob.glob(f"{build}/plugins/*/.libs/core_*.so"))
    if not found:
        sys.exit(f"{build} has no plugins, without which the package has no "
                 "devices; build them, or name files with --plugin")
    return found


def content(build, plugins, shims):
    """Pairs: the name of a file in the wheel, and the file."""
    package = sorted(glob.glob(f"{HERE}/libcore_torch/*.py"))
    pairs = [("libcore_torch/" + os.path.basename(name), name)
             for name in package + shims]
    pairs += [("libcore_torch/plugins/" + os.path.basename(name), name)
              for name in plugins]
    library = f"{build}/.libs/libcore.so.0"
    return pairs + [("libcore_torch/libcore.so.0", library)]


def record(name, data):
    """A line of the list of files: name, hash and size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"{name},sha256={digest.decode().rstrip('=')},{len(data)}\n"


def write(path, files, folder):
    """files: pairs of a name and bytes."""
    lines = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files:
            information = zipfile.ZipInfo(name)  # of a fixed date
            information.compress_type = zipfile.ZIP_DEFLATED
            information.external_attr = 0o644 << 16
            wheel.writestr(information, data)
            lines += record(name, data)
        wheel.writestr(f"{folder}/RECORD", lines + f"{folder}/RECORD,,\n")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--plugin", action="append", default=[])
    options = parser.parse_args()
    plugins = options.plugin or plugins_of(options.build)
    shims = shims_of(options.build, options.python)
    version = version_of(options.build)
    tag = "py3-none-" + re.sub(r"\W", "_", sysconfig.get_platform())
    folder = f"libcore_torch-{version}.dist-info"
    files = [(name, read(path)) for name, path in content(
        options.build, plugins, shims)]
    metadata = METADATA.format(version=version, versions=versions_of(shims))
    files += [(f"{folder}/METADATA", metadata.encode()),
              (f"{folder}/LICENSE",
               read(os.path.join(HERE, os.pardir, os.pardir, "LICENSE"))),
              (f"{folder}/WHEEL", WHEEL.format(tag=tag).encode())]
    path = os.path.join(options.folder, f"libcore_torch-{version}-{tag}.whl")
    write(path, files, folder)
    print(path)


if __name__ == "__main__":
    main()
