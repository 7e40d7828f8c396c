# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""The judges of judges.py refuse wrong results.  No device is used."""

import collections
import unittest

import torch

import judges
import steps

BF16, F64 = torch.bfloat16, torch.float64
INF, NAN = float("inf"), float("nan")
Op = collections.namedtuple("Op", "name")
Sample = collections.namedtuple("Sample", "input args kwargs")


class Numbers(unittest.TestCase):
    def refused(self, have, expected, best=None, dtype=torch.float32, **more):
        have, expected = (torch.tensor(one, dtype=dtype)
                          for one in (have, expected))
        exact = None if best is None else torch.tensor(best, dtype=F64)
        with self.assertRaises(AssertionError):
            judges.check(have, expected, lambda: exact, **more)

    def passed(self, have, expected, best=None, dtype=torch.float32, **more):
        have, expected = (torch.tensor(one, dtype=dtype)
                          for one in (have, expected))
        exact = None if best is None else torch.tensor(best, dtype=F64)
        judges.check(have, expected, lambda: exact, **more)

    def test_infinities_do_not_excuse_other_elements(self):
        self.refused([0, 12345], [-INF, 1], [-INF, 1])
        self.refused([-INF, 12345], [-INF, 1], [-INF, 1])
        self.refused([INF, 1], [-INF, 1], [-INF, 1])
        self.refused([1, INF], [1, 2], [1, 3])
        self.refused([1, NAN], [1, 2], [1, 3])
        self.refused([1, 1], [1, NAN], [1, NAN])
        self.passed([-INF, NAN, 2], [-INF, NAN, 1], [-INF, NAN, 3])

    def test_integers_are_equal(self):
        self.refused([1000050], [1000000], dtype=torch.int64)
        self.refused([True, True], [True, False], dtype=torch.bool)
        self.passed([1000000], [1000000], dtype=torch.int64)

    def test_f64_is_not_computed_in_f32(self):
        exact = torch.rand(50, dtype=F64).add(1)
        with self.assertRaises(AssertionError):
            judges.check(exact.float().double(), exact, lambda: exact)
        judges.check(exact + 1e-12, exact, lambda: exact)

    def test_small_elements_of_bf16_are_judged(self):
        chances = torch.randn(30).softmax(0)
        with self.assertRaises(AssertionError):
            judges.check(torch.zeros(30, dtype=BF16), chances.to(BF16),
                         lambda: chances.double())

    def test_a_large_element_does_not_excuse_others(self):
        self.refused([100, 0], [100, 0.5], [100, 0.5], BF16)

    def test_zeros_are_not_near_to_small_results(self):
        for size in (5e-5, 1e-6, 1e-9, 1e-30):
            self.refused([0, 0], [size, -size / 2], [size, -size / 2])
            self.refused([0, 0], [size, -size / 2])
            self.refused([size * 1.0001], [size], [size])
            self.passed([size * 1.000001], [size], [size])
        self.refused([1e-5], [0], [0])
        self.passed([1, 5e-7], [1, 0], [1, 0])

    def test_f32_may_have_errors_of_torchs_size(self):
        unit = torch.finfo(torch.float32).eps
        best, other = [100.0, 0.5, 2e-5], [100 + 800 * unit, 0.5, 2e-5]
        self.passed([100, 0.5 + 1000 * unit, 2e-5], other, best)
        for wrong in ([100, 0.5 + 2000 * unit, 2e-5], [100, 0.5, 0.001],
                      [0, 0, 0]):
            self.refused(wrong, other, best)
        # Large errors of torch's excuse nothing,
        other = [101, 0.5, 2e-5]
        for wrong in ([100, 0.501, 2e-5], [100, 0, 0], [100, 0.5, 3]):
            self.refused(wrong, other, best)
        # but where terms cancel.
        self.passed([100, 3, 2], other, best, slack=0)
        self.refused([100, 5, 2e-5], other, best, slack=0)
        self.passed([3e-6, 1], [0, 1], [0, 1], slack=4e-6)
        self.refused([5e-6, 1], [0, 1], [0, 1], slack=4e-6)
        self.refused([100.03, 0.5], [100.01, 0.5], [100, 0.5], torch.float64)

    def test_what_is_nearer_to_the_exact_result_is_right(self):
        self.passed([1.01], [1.02], [1.0])
        self.refused([1.02], [1.01], [1.0])
        self.refused([1.01], [1.02])

    def judged(self, *results, parts=("results",)):
        errors = judges.Errors()
        for index, (have, expected, best) in enumerate(results):
            self.passed(have, expected, best, BF16, errors=errors,
                        part=parts[index % len(parts)])
        errors.check()

    def test_results_of_16_bits_may_be_as_exact_as_torchs(self):
        best, other = [100.0, 0.5, 2], [100.5, 0.75, 2]
        self.judged(([100, 0.625, 2.125], other, best))
        self.judged(([100.5, 0.75, 2.75], other, best), (best, other, best))
        self.judged((best, [NAN] * 3, best))
        for wrong in ([100.5, 0.75, 2.75], [102, 0.5, 2], [100, 1.5, 2]):
            with self.assertRaisesRegex(AssertionError, "times torch's"):
                self.judged((wrong, other, best))
        for wrong in ([110, 0.5, 2], [100, 0.5, 5], [100, NAN, 2],
                      [INF, 0.5, 2]):
            self.refused(wrong, other, best, BF16, errors=judges.Errors())
        for wrong in ([100, 0.5, INF], [1000, 0.5, 2]):
            self.refused(wrong, [NAN] * 3, best, BF16, errors=judges.Errors())
        self.refused([100, 0.625, 2.125], other, best)
        self.refused([100, 0.625, 2.125], other, best, BF16)

    def test_what_torch_cannot_compute_excuses_nothing(self):
        best, other = [100.0, 0.5, 2], [100.5, 0.75, 2]
        for lost in ([NAN] * 3, [INF] * 3, [100, NAN, 2]):
            for wrong in ([0] * 3, [100, 0, 2], [100, 1, 2], [100, INF, 5]):
                self.refused(wrong, lost, best, BF16, errors=judges.Errors())
            self.judged((best, lost, best))
        self.judged(([100, 0.5, 2.25], [NAN] * 3, best))
        # Nor in other results, and gradients do not excuse results.
        wrong = [100.5, 0.75, 2.75], other, best
        for excuse in (best, [NAN] * 3, best), ([0, 0, 0], [50, 0, 0], [0] * 3):
            with self.assertRaisesRegex(AssertionError, "times torch's"):
                self.judged(wrong, excuse)
        with self.assertRaisesRegex(AssertionError, "all results"):
            self.judged(wrong, ([100, 0, 2], [102, 0, 2], [100, 0, 2]),
                        parts=("results", "gradients"))

    def test_large_errors_of_torchs_excuse_few_units(self):
        best, other = [100.0, 0.5, 2], [50.0, 0.5, 2]
        self.judged(([103, 0.5, 2], other, best))
        for wrong in ([0, 0, 0], [40, 0.5, 2], [100, 0.5, 60]):
            self.refused(wrong, other, best, BF16, errors=judges.Errors())

    def test_results_of_another_size_or_dtype_are_refused(self):
        self.refused([1, 1], [1])
        with self.assertRaises(AssertionError):
            judges.check(torch.ones(1, dtype=BF16), torch.ones(1),
                         lambda: torch.ones(1, dtype=F64))


    def test_what_cannot_be_represented_is_infinite(self):
        for errors in (None, judges.Errors()):
            self.passed([1, INF], [1, NAN], [1, 93058.0], torch.float16,
                        errors=errors)
            self.passed([1, -INF], [1, NAN], [1, -93058.0], torch.float16,
                        errors=errors)
            for wrong in ([1, 60000], [1, -INF], [INF, INF], [2, INF]):
                self.refused(wrong, [1, NAN], [1, 93058.0], torch.float16,
                             errors=errors)

    def test_all_errors_together_are_not_judged_by_steps(self):
        best, other = [100.0, 0.5, 2], [100.5, 0.75, 2]
        errors = judges.Errors(by_sum=False)
        self.passed([100.5, 0.75, 2.75], other, best, BF16, errors=errors)
        errors.check()
        self.refused([110, 0.5, 2], other, best, BF16, errors=errors)


class Rounding(unittest.TestCase):
    """What steps.py judges."""

    def right(self, have, best, dtype=torch.float16, largest=0):
        return steps.rounded_once(torch.tensor(have, dtype=dtype),
                                  torch.tensor(best, dtype=F64),
                                  largest).tolist()

    def test_a_result_is_rounded_once(self):
        unit = 2 ** -10
        self.assertEqual(self.right([1, 1 + unit, 1, 1 - unit / 2],
                                    [1 + 0.4 * unit, 1 + 0.4 * unit,
                                     1 + 0.6 * unit, 1.0]),
                         [True, False, False, False])
        # The middle between two numbers, which f32 may reach by rounding.
        self.assertEqual(self.right([1, 1 + unit], [1 + 0.501 * unit] * 2),
                         [True, True])
        self.assertEqual(self.right([1, 1.0078125], [1.0035] * 2, BF16),
                         [True, False])

    def test_numbers_below_the_normal_ones_have_their_unit(self):
        least = 2.0 ** -24
        self.assertEqual(self.right([least, 0, 0], [0.6 * least, 0.6 * least,
                                                    0.4 * least]),
                         [True, False, True])

    def test_operands_that_cancel_are_computed_in_f32(self):
        self.assertEqual(self.right([2 ** -20, 2 ** -20], [2 ** -20 + 2e-7,
                                                           2 ** -20 + 2e-6],
                                    largest=1), [True, False])
        self.assertEqual(self.right([2 ** -20], [2 ** -20 + 2e-7], largest=.1),
                         [False])

    def test_infinities_and_nan(self):
        self.assertEqual(self.right([INF, 60000, INF, NAN, NAN, 1, INF, -INF],
                                    [93058.0, 93058, 1, NAN, 1, NAN, INF, INF]),
                         [True, False, False, True, False, False, True, False])

    def test_each_operator_is_judged(self):
        x = torch.randn(9, dtype=torch.float16, requires_grad=True)
        with steps.Steps() as judge:
            (x.exp() * 0.5).sum().backward()
        judge.check()
        self.assertGreater(judge.judged, 3)
        judge.judge("exp", torch.tensor([1.0]).half(), torch.tensor([1.1]).double(),
                    1)
        with self.assertRaisesRegex(AssertionError, "exp: .1.0. instead of .1.1"):
            judge.check()
        with self.assertRaisesRegex(AssertionError, "no operator"):
            steps.Steps().check()

    def test_changes_in_place_are_judged_beside_the_operands_before(self):
        x = torch.arange(1.0, 4, dtype=BF16)
        with steps.Steps() as judge:
            x.mul_(3)
        judge.check()
        self.assertEqual((judge.judged, x.tolist()), (1, [3, 6, 9]))


class Ties(unittest.TestCase):
    def order(self, name, given, *args, seeds=(), dtype=BF16, **kwargs):
        return judges.order_of(Op(name), Sample(
            torch.tensor(given, dtype=dtype), args, kwargs), seeds)

    def argsort(self, given, index, right):
        judges.check_ordered(self.order("argsort", given),
                             ([torch.tensor(index)], []),
                             ([torch.tensor(right)], []))

    def test_indices_select_what_torch_selects(self):
        self.argsort([9, 9, -9], [2, 1, 0], [2, 0, 1])
        for wrong in ([0, 0, 0], [0, 1, 2], [2, 0, 0], [2, 1, 5], [2, 1, -3]):
            with self.assertRaises(AssertionError):
                self.argsort([9, 9, -9], wrong, [2, 0, 1])
        with self.assertRaises(AssertionError):  # near in bf16, in wrong order
            self.argsort([9, 9.0625, 9], [0, 1, 2], [0, 2, 1])

    def test_indices_of_rows_are_repeated_in_other_rows(self):
        self.argsort([[1, 1], [1, 1]], [[0, 1], [1, 0]], [[0, 1], [0, 1]])
        with self.assertRaises(AssertionError):
            self.argsort([[1, 1], [1, 1]], [[0, 1], [1, 1]], [[0, 1], [0, 1]])

    def test_an_order_without_ties_is_compared_as_it_is(self):
        self.assertIsNone(self.order("sort", [3, 1, 2]))
        self.assertIsNone(self.order("sort", [3, 3, 2], stable=True))
        self.assertIsNone(self.order("add", [3, 3, 2]))

    def sort(self, gradient, index=(2, 0, 1)):
        """Sorts [9, 9, -9], with the gradient [1, 2, 3] of the values."""
        order = self.order("sort", [9, 9, -9], dtype=torch.float32,
                           seeds=[torch.tensor([1.0, 2, 3])])
        values = torch.tensor([-9.0, 9, 9])
        judges.check_ordered(
            order, ([values, torch.tensor(index)], [torch.tensor(gradient)]),
            ([values, torch.tensor([2, 1, 0])], [torch.tensor([3.0, 2, 1])]))

    def test_gradients_go_where_the_indices_are(self):
        self.sort([2.0, 3, 1])
        self.sort([3.0, 2, 1], (2, 1, 0))
        for wrong in ([3.0, 2, 1], [1.0, 2, 3], [6.0, 0, 0]):
            with self.assertRaises(AssertionError):
                self.sort(wrong)

    def test_wrong_values_are_refused(self):
        order = self.order("sort", [9, 9, -9])
        index = torch.tensor([2, 0, 1])
        with self.assertRaises(AssertionError):
            judges.check_ordered(order, ([torch.tensor([9, 9, 9.0])] + [index],
                                         []),
                                 ([torch.tensor([-9, 9, 9.0])] + [index], []))

    def test_elements_are_selected_one_a_row(self):
        for kwargs in ({}, {"keepdim": True}):
            given = torch.tensor([[2.0, 1, 2], [5, 5, 4]])
            order = self.order("kthvalue", given.tolist(), 2, 1, **kwargs,
                               dtype=torch.float32,
                               seeds=[torch.ones(2, 1)[:, 0]])
            values, index = given.kthvalue(2, 1)
            other = torch.tensor([2 - index[0], 1 - index[1]])
            gradient = torch.zeros(2, 3).scatter_(1, other[:, None], 1)
            right = torch.zeros(2, 3).scatter_(1, index[:, None], 1)
            judges.check_ordered(order, ([values, other], [gradient]),
                                 ([values, index], [right]))
            with self.assertRaises(AssertionError):
                judges.check_ordered(order, ([values, other], [right]),
                                     ([values, index], [right]))

    def test_gradients_without_indices_stay_among_equal_elements(self):
        order = self.order("msort", [9, 9, -9], dtype=torch.float32)
        values = [torch.tensor([-9.0, 9, 9])]
        right = [torch.tensor([2.0, 3, 1])]
        for good in ([2.0, 3, 1], [3.0, 2, 1]):
            judges.check_ordered(order, (values, [torch.tensor(good)]),
                                 (values, right))
        for wrong in ([1.0, 2, 3], [2.0, 2, 1], [6.0, 0, 0]):
            with self.assertRaises(AssertionError):
                judges.check_ordered(order, (values, [torch.tensor(wrong)]),
                                     (values, right))


class Fallbacks(unittest.TestCase):
    def test_only_listed_operators_fall_back(self):
        judges.check_fallbacks("add", {})
        judges.check_fallbacks("fft.rfft", {"aten::_fft_r2c": 3})
        for entry, operator in (("fft.rfft", "aten::add.Tensor"),
                                ("add", "aten::_fft_r2c")):
            with self.assertRaisesRegex(AssertionError, operator):
                judges.check_fallbacks(entry, {operator: 1})

    def test_a_device_has_its_own_list(self):
        counts = {"aten::histc": 2}
        judges.check_fallbacks("histc", counts, "opencl")
        judges.check_fallbacks("fft.rfft", {"aten::_fft_r2c": 3}, "opencl")
        for entry, device in (("histc", "cpu"), ("histc", ""),
                              ("add", "opencl")):
            with self.assertRaisesRegex(AssertionError, "aten::histc"):
                judges.check_fallbacks(entry, counts, device)


if __name__ == "__main__":
    unittest.main()
