"use strict";
// Exact numbers: a whole number is a BigInt, any other {top, below} in lowest terms with below > 1.

/** The one name that the page adds to the window. */
const Symacct = (window.Symacct = { ready: false, milliseconds: 0 });

(() => {
  const magnitude = (n) => (n < 0n ? -n : n);

  function gcd(a, b) {
    while (b) [a, b] = [b, a % b];
    return magnitude(a);
  }

  /** The fraction of two BigInts as an exact number. */
  function exact(top, below = 1n) {
    if (below === 1n) return top;
    if (below === 0n) throw new RangeError("a formula divides by zero");
    const shared = gcd(top, below) * (below < 0n ? -1n : 1n);
    return below / shared === 1n ? top / shared : { top: top / shared, below: below / shared };
  }

  const topOf = (a) => (typeof a === "bigint" ? a : a.top);
  const belowOf = (a) => (typeof a === "bigint" ? 1n : a.below);

  function add(a, b) {
    if (typeof a === "bigint" && typeof b === "bigint") return a + b;
    return exact(topOf(a) * belowOf(b) + topOf(b) * belowOf(a), belowOf(a) * belowOf(b));
  }

  function multiply(a, b) {
    if (typeof a === "bigint" && typeof b === "bigint") return a * b;
    return exact(topOf(a) * topOf(b), belowOf(a) * belowOf(b));
  }

  const subtract = (a, b) => add(a, multiply(-1n, b));

  /** Less than, equal to or greater than 0 as a is to b. */
  function compare(a, b) {
    const left = topOf(a) * belowOf(b);
    const right = topOf(b) * belowOf(a);
    return left < right ? -1 : left > right ? 1 : 0;
  }

  /** The nearest Number, also where both parts of a fraction are beyond what a Number can be. */
  function number(a) {
    if (typeof a === "number") return a;
    if (typeof a === "bigint") return Number(a);
    const whole = a.top / a.below;
    const rest = a.top - whole * a.below;
    const scale = 2n ** 64n; // of what is left over, 64 bits are more than a Number keeps
    return Number(whole) + Number((rest * scale) / a.below) / Number(scale);
  }

  /** Division that rounds towards minus infinity, as Python does; of BigInts. */
  function floor(a, b) {
    const quotient = a / b;
    return quotient * b !== a && a < 0n !== b < 0n ? quotient - 1n : quotient;
  }

  const mod = (a, b) => a - floor(a, b) * b;
  const max = (...all) => all.reduce((a, b) => (b > a ? b : a));
  const min = (...all) => all.reduce((a, b) => (b < a ? b : a));

  Symacct.exact = { exact, add, multiply, subtract, compare, number, floor, mod, max, min };
})();
