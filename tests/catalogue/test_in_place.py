"""Steps that write their inputs, and optimizer updates."""

from __future__ import annotations

import torch
from tests.catalogue.harness import check, rand


def test_one_input_is_updated() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(0.9).add_(y)
        return x * 2

    check(f, rand(9, 33), rand(9, 33, seed=1))


def test_the_old_value_is_returned_too() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = x * 1
        x.add_(1)
        return old, x

    check(f, rand(9, 33))


def test_adamw() -> None:
    def step(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> None:
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.mul_(1 - 1e-4).addcdiv_(m / 0.1, (v / 0.001).sqrt().add_(1e-8), value=-1e-3)

    check(step, *(rand(17, 33, seed=i) for i in range(3)), rand(17, 33, seed=4).abs())


def test_sgd_of_several_tensors() -> None:
    def step(a: torch.Tensor, b: torch.Tensor, ga: torch.Tensor, gb: torch.Tensor) -> None:
        for p, g in ((a, ga), (b, gb)):
            p.add_(g * 0.5, alpha=-0.1)

    check(
        step,
        rand(9, 33),
        rand(9, 33, seed=1),
        rand(9, 33, seed=2),
        rand(9, 33, seed=3),
        refused="F501",
        kernels=2,
    )


def test_a_transposed_input_is_updated() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(y).add_(1)
        return x.abs()

    check(f, rand(33, 9).t(), rand(9, 33))


def test_rows_are_normalized_in_place() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.sub_(x.mean(-1, keepdim=True)).mul_(2)
        return x.abs()

    check(f, rand(9, 33))


def test_a_neighbour_is_read_after_its_update() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x[:, 1:] + x[:, :-1]

    check(f, rand(9, 33), refused="F501", kernels=0)


def test_part_of_an_input_is_written() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[:, 2:9].add_(y)
        return x * 2

    check(f, rand(9, 33), rand(9, 7))


def test_running_statistics() -> None:
    def f(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        m = (x * 2).mean(1)
        mean.mul_(0.9).add_(m, alpha=0.1)
        return m + 1

    check(f, rand(9, 33), rand(9))
