"""What shares memory in eager shares memory in a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusebound.engine.compile import Options, compile


def view_of_written(x: torch.Tensor) -> Any:
    x.mul_(2).add_(1)
    return x.t(), x * 3


def written_through_a_view(x: torch.Tensor) -> Any:
    v = x.view(-1)
    z = x * 2 + 1
    v.add_(1)
    return z, v


def written_in_part(x: torch.Tensor) -> Any:
    v = x[2:]
    v.mul_(2).add_(1)
    return x * 3 + 1, v


def written_itself(x: torch.Tensor) -> Any:
    x.mul_(2).add_(1)
    return x, x[1:]


def views_of_a_result(x: torch.Tensor) -> Any:
    z = x * 2 + 1
    return z, z.t(), z[1:]


def views_of_something_hidden(x: torch.Tensor) -> Any:
    z = x * 2 + 1
    return z.t(), z[1:], z.expand(2, 6, 8)


def halves(x: torch.Tensor) -> Any:
    return (x * 2 + 1).chunk(2, 0)


def views_of_an_argument(x: torch.Tensor) -> Any:
    return x.t(), x[1:], x, x * 2 + 1


def nothing_to_copy(x: torch.Tensor) -> Any:
    z = x * 2 + 1
    return z.to(torch.float32), z.contiguous(), z.clone(), z.reshape(-1)


def a_result_twice(x: torch.Tensor) -> Any:
    z = x * 2 + 1
    return z, z


def swapped(x: torch.Tensor) -> Any:
    x.copy_(x.t().contiguous().view(6, 8) * 2 + 1)
    return x * 2


def of_its_own_type(x: torch.Tensor) -> Any:
    y = x.type_as(x)
    y.mul_(2).add_(1)
    return y, x * 3


def through_dropout(x: torch.Tensor) -> Any:
    y = torch.nn.functional.dropout(x, 0.5, training=False)
    y.mul_(2).add_(1)
    return y, x * 3


def through_dropout_of_nothing(x: torch.Tensor) -> Any:
    y = torch.nn.functional.dropout(x[6:], 0.5)
    z = torch.nn.functional.dropout(x, 0.0)
    z.mul_(2).add_(1)
    return y, z, x * 3


def views_written_through_a_mask(x: torch.Tensor) -> Any:
    v = x[:, ::2].permute(1, 0)
    v[v > 0] = 2
    return v, x * 3


def diagonal_of_written(x: torch.Tensor) -> Any:
    x.mul_(2).add_(1)
    return x.diagonal(), x.as_strided((2, 2), (1, 8))


def written_through_a_diagonal(x: torch.Tensor) -> Any:
    v = x[1:].diagonal()
    v.mul_(2).add_(1)
    return v, x * 3


def views_that_change_nothing(x: torch.Tensor) -> Any:
    z = x * 2 + 1
    return (
        x.view(x.shape),
        x[:].detach(),
        z,
        z.reshape(z.shape),
        z.contiguous(),
        torch.cat([x]),
        x.type_as(z),
        z.type_as(x),
    )


def test_what_is_written_through_an_expansion_that_repeats_nothing() -> None:
    def fn(x: torch.Tensor) -> Any:
        x.expand_as(x).neg_()
        x.expand(1, 4).add_(0.1)
        return x * 2, x.expand(4).abs()

    compiled = compile(fn, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    x, y = (torch.tensor([0.0, float("inf"), 1e30, 3e-8]) for _ in range(2))
    assert all(map(torch.equal, compiled(x), fn(y))) and torch.equal(x, y)
    assert compiled.executable is not None


@pytest.mark.parametrize(
    "fn",
    [
        view_of_written, written_through_a_view, written_in_part, written_itself, views_of_a_result,
        views_of_something_hidden, halves, views_of_an_argument, nothing_to_copy, a_result_twice, swapped,
        of_its_own_type, through_dropout, through_dropout_of_nothing, views_written_through_a_mask,
        diagonal_of_written, written_through_a_diagonal,
        views_that_change_nothing,
    ],
)  # fmt: skip
def test_shared_memory(fn: Callable[..., Any]) -> None:
    compiled = compile(fn, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    for _ in range(2):
        x = torch.randn(6, 8)
        y = x.clone()
        got, want = tensors(compiled(x), x), tensors(fn(y), y)
        assert compiled.executable is not None
        assert groups(got) == groups(want)
        assert objects(got) == objects(want)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()


def tensors(result: Any, x: torch.Tensor) -> list[torch.Tensor]:
    return [x, *(result if isinstance(result, (tuple, list)) else [result])]


def groups(found: list[torch.Tensor]) -> list[int]:
    """A number for each tensor that is equal for those in one storage."""
    seen: dict[int, int] = {}
    return [seen.setdefault(t.untyped_storage()._cdata, len(seen)) for t in found]


def objects(found: list[torch.Tensor]) -> list[int]:
    """A number for each tensor that is equal for those that are one object: of a view, eager makes another."""
    seen: dict[int, int] = {}
    return [seen.setdefault(id(t), len(seen)) for t in found]
