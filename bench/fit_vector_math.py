"""Derives the polynomial coefficients of the vector math (`src/fusebound/codegen/math/coefficients.py`).

    python bench/fit_vector_math.py > src/fusebound/codegen/math/coefficients.py

Each polynomial is the weighted minimax fit (Remez exchange, 50 digits) of a smooth function on the interval
that the argument reduction leaves. Coefficients are rounded to their machine type one at a time from the
constant term up, and those that are left are fitted again each time: the rest makes up for each rounding.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 50
Function = Callable[[mp.mpf], mp.mpf]
MARGIN = mp.mpf(
    "1.002"
)  # the rounding of the reduced argument's quotient leaves slightly more than half a period


@dataclass(frozen=True)
class Fit:
    """One polynomial: `target` on [lo, hi] to `degree`, the error weighted by `weight`, stored as `kind`."""

    name: str
    what: str
    target: Function
    weight: Function
    lo: mp.mpf
    hi: mp.mpf
    degree: int
    kind: str = "float"


def rounded(value: mp.mpf, kind: str) -> mp.mpf:
    """`value` rounded to float32 or float64."""
    number = float(value)
    return mp.mpf(number if kind == "double" else struct.unpack("<f", struct.pack("<f", number))[0])


def remez(fit: Fit, fixed: list[mp.mpf]) -> tuple[list[mp.mpf], mp.mpf]:
    """Minimax coefficients after the `fixed` lowest ones, and the greatest weighted error."""
    free = fit.degree + 1 - len(fixed)

    def rest(x: mp.mpf) -> mp.mpf:
        return fit.target(x) - sum(c * x**k for k, c in enumerate(fixed))

    grid = [fit.lo + (fit.hi - fit.lo) * (1 - mp.cos(mp.pi * i / 400)) / 2 for i in range(401)]
    table = [(x, rest(x), abs(fit.weight(x))) for x in grid]
    heaviest = max(w for _, _, w in table)
    table = [row for row in table if row[2] > heaviest / 10**6]
    picks = [round(i * (len(table) - 1) / free) for i in range(free + 1)]
    coefficients: list[mp.mpf] = []
    worst = mp.mpf(0)
    for _ in range(30):
        rows = [table[i] for i in picks]
        system = mp.matrix(
            [
                [x ** (k + len(fixed)) for k in range(free)] + [(-1) ** j / w]
                for j, (x, _, w) in enumerate(rows)
            ]
        )
        solution = mp.lu_solve(system, mp.matrix([y for _, y, _ in rows]))
        coefficients = [solution[k] for k in range(free)]
        errors = [
            w * (y - sum(c * x ** (k + len(fixed)) for k, c in enumerate(coefficients))) for x, y, w in table
        ]
        worst = max(abs(e) for e in errors)
        if worst <= abs(solution[free]) * mp.mpf("1.01"):
            break
        picks = exchange(errors, free + 1)
    return coefficients, worst


def exchange(errors: list[mp.mpf], count: int) -> list[int]:
    """Indices of `count` extrema of alternating sign, the greatest ones."""
    peaks: list[int] = []
    for i, e in enumerate(errors):
        if peaks and (e > 0) == (errors[peaks[-1]] > 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        if len(peaks) == count + 1:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
            continue
        at = min(range(len(peaks) - 1), key=lambda k: max(abs(errors[peaks[k]]), abs(errors[peaks[k + 1]])))
        del peaks[at : at + 2]
    if len(peaks) < count:
        return [round(i * (len(errors) - 1) / (count - 1)) for i in range(count)]
    return peaks


def solve(fit: Fit) -> tuple[list[float], float]:
    """Machine coefficients, constant term first, and the greatest weighted error with them."""
    fixed: list[mp.mpf] = []
    for _ in range(fit.degree + 1):
        coefficients, _ = remez(fit, fixed)
        fixed.append(rounded(coefficients[0], fit.kind))
    points = [fit.lo + (fit.hi - fit.lo) * i / mp.mpf(2001) for i in range(2002)]
    worst = max(
        abs(fit.weight(x) * (fit.target(x) - sum(c * x**k for k, c in enumerate(fixed)))) for x in points
    )
    return [float(c) for c in fixed], float(worst)


def series(value: Function, order: int) -> Function:
    """(value(x) - its Taylor polynomial below `order`) / x^order, without the singularity at 0."""
    terms = mp.taylor(value, 0, order + 14)
    head, tail = terms[:order][::-1], terms[order:][::-1]

    def smooth(x: mp.mpf) -> mp.mpf:
        if abs(x) < mp.mpf("0.01"):
            return mp.polyval(tail, x)
        return (value(x) - mp.polyval(head, x)) / x**order

    return smooth


def even(value: Function) -> Function:
    """The function of z = x² that `value` is."""
    return lambda z: value(mp.sqrt(abs(z)))


def fits() -> list[Fit]:
    """Every polynomial of the library."""
    ln2, half = mp.log(2), mp.log(2) / 2 * MARGIN
    quarter = mp.pi / 4 * MARGIN
    low, high = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(mp.mpf(2)) - 1
    exp2nd = series(mp.exp, 2)
    exp1st = series(mp.exp, 1)
    two1st = series(lambda x: mp.exp(x * ln2), 1)
    log2nd = series(lambda f: mp.log(1 + f), 2)
    log1st = series(lambda f: mp.log(1 + f), 1)
    sin3rd = series(mp.sin, 3)
    cos4th = series(mp.cos, 4)
    edge = mp.mpf("1.0")
    tail = mp.mpf("3.93")
    split = (mp.sqrt(mp.mpf(2)) - 1) ** 2  # the greatest s = f / (2 + f)

    def log2(s2: mp.mpf) -> mp.mpf:
        s = mp.sqrt(s2)
        return 2 / ln2 * (mp.atanh(s) / s if s > mp.mpf("1e-12") else 1 + s2 / 3)

    def erf1st(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return (mp.erf(x) / x if x > mp.mpf("1e-15") else 2 / mp.sqrt(mp.pi)) - 1

    def over(order: int, value: Function) -> Function:
        return lambda x: x**order / value(x) if x else mp.mpf(0)

    return [
        Fit("EXP", "(exp r - 1 - r) / r²", exp2nd, lambda r: r**2 / mp.exp(r), -half, half, 4),
        Fit("EXP2", "(2^r - 1) / r", two1st, lambda r: r / mp.exp(r * ln2), -MARGIN / 2, MARGIN / 2, 5),
        Fit("EXPM1", "(exp r - 1) / r in float64", exp1st, lambda r: 1 / exp1st(r), -half, half, 6, "double"),
        Fit("EXP2_WIDE", "(2^r - 1) / r in float64", two1st, lambda r: r / mp.exp(r * ln2),
            -MARGIN / 2, MARGIN / 2, 5, "double"),
        Fit("LOG", "(log(1 + f) - f) / f²", log2nd, over(2, lambda f: mp.log(1 + f)), low, high, 9),
        Fit("LOG2", "(log2(1 + f) - f / ln 2) / f²", lambda f: log2nd(f) / ln2,
            over(2, lambda f: mp.log(1 + f) / ln2), low, high, 9),
        Fit("LOG1P", "log(1 + f) / f in float64", log1st, lambda f: 1 / log1st(f), low, high, 10, "double"),
        Fit("LOG2_WIDE", "log2((1 + s) / (1 - s)) / s as a polynomial in s², in float64", log2,
            lambda z: 1 / log2(z), mp.mpf(0), split**2 * MARGIN, 5, "double"),
        Fit("SIN", "(sin r - r) / r³ as a polynomial in r²", even(sin3rd),
            lambda z: z**1 / even(lambda r: mp.sin(r) / r if r else mp.mpf(1))(z), mp.mpf(0), quarter**2, 3),
        Fit("COS", "(cos r - 1 + r²/2) / r⁴ as a polynomial in r²", even(cos4th),
            lambda z: z**2 / mp.cos(mp.sqrt(z)), mp.mpf(0), quarter**2, 2),
        Fit("ERF", "erf x / x - 1 as a polynomial in x²", erf1st, lambda z: 1 / (1 + erf1st(z)),
            mp.mpf(0), edge**2, 7),
        Fit("ERFC", "log(erfc x) / x + 1 for the larger arguments", lambda x: mp.log(mp.erfc(x)) / x + 1,
            lambda x: x * mp.erfc(x) / mp.erf(x), edge, tail, 6),
    ]  # fmt: skip


ODD = 2
"""Pieces of erf that are multiples of their argument."""


def erf_pieces(pieces: int, width: mp.mpf, degree: int) -> tuple[list[list[float]], float]:
    """A row for each piece from (k - 1/2) · width to (k + 1/2) · width: a centre c, erf c, a polynomial in t = x - c.

    From piece `ODD` on it is (erf x - erf c) / t, before it erf x / x - 1, without erf c. Centres are near k · width,
    where erf c is close to a float32 number.
    """
    rows: list[list[float]] = []
    greatest = 0.0
    half = width / 2 * MARGIN
    for k in range(pieces):
        centre, value = (k * width, mp.mpf(0)) if k < ODD else centre_of(k * width)
        terms = mp.taylor(mp.erf, centre, 6 * degree)[1:][::-1]

        def rising(t: mp.mpf, terms: list[mp.mpf] = terms) -> mp.mpf:
            return mp.polyval(terms, t)

        def ratio(t: mp.mpf, centre: mp.mpf = centre) -> mp.mpf:
            x = centre + t
            return (mp.erf(x) / x if abs(x) > mp.mpf("1e-15") else 2 / mp.sqrt(mp.pi)) - 1

        def weight(t: mp.mpf, k: int = k, centre: mp.mpf = centre) -> mp.mpf:
            x = centre + t
            return mp.mpf(1) if k < ODD else t / mp.erf(x)

        low, high = (k * width - centre + side for side in (0 if k == 0 else -half, half))
        fit = Fit("ERF", f"piece {k}", ratio if k < ODD else rising, weight, low, high, degree)
        coefficients, worst = solve(fit)
        greatest = max(greatest, worst)
        rows.append([float(centre), float(value), *coefficients])
    return rows, greatest


def centre_of(near: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """A float32 number whose erf is nearly one, and that."""
    first = rounded(mp.erf(near), "float")
    step = first - rounded(first * (1 - mp.mpf(2) ** -24), "float")
    pairs = ((rounded(mp.erfinv(v), "float"), v) for i in range(1000) if (v := first - i * step) < 1)
    return next(pair for pair in pairs if abs(mp.erf(pair[0]) - pair[1]) < step / 200)


def main() -> None:
    """Print the module of coefficients; the errors go to stderr."""
    print(
        '"""Polynomial coefficients, constant term first: printed by bench/fit_vector_math.py, not edited."""'
    )
    for fit in fits():
        coefficients, worst = solve(fit)
        print(f"{fit.name}: degree {fit.degree}, weighted error {worst:.2e}", file=sys.stderr)
        print(f"\n# {fit.what}, |weighted error| <= {worst:.1e}")
        print(f"{fit.name} = (\n" + "".join(f"    {c!r},\n" for c in coefficients) + ")")
    for pieces, width, degree in ((32, mp.mpf(1) / 8, 4), (8, mp.mpf(17) / 32, 6)):
        rows, worst = erf_pieces(pieces, width, degree)
        what = f"{pieces} pieces of erf: centre, erf there, polynomial, |weighted error| <= {worst:.1e}"
        print(f"\n# {what}\nERF_{pieces} = (")
        for row in rows:
            print("    (\n" + "".join(f"        {c!r},\n" for c in row) + "    ),")
        print(")")


if __name__ == "__main__":
    main()
