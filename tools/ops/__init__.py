# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""The parts of gen_ops.py: schemas, formulas, and generated files."""
