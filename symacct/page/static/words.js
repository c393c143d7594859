"use strict";
// Numbers in words, as symacct.printing has them, and sizes out of words.

(() => {
  const { compare, number } = Symacct.exact;
  const PREFIXES = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
  const SMALL = ["", "m", "µ", "n", "p"];
  const THIN = "\u202f";
  const NOTHING = "\u2013";
  const HINT = "a size is a whole number from 1, such as 4096, 4_096, 1e6 or 2**20";
  const LONGEST = 40; // digits of a size: more than anyone means

  /** Four digits without trailing zeros: Python's "%.4g". */
  function short(value) {
    if (value === 0) return "0";
    const power = Math.floor(Math.log10(Math.abs(value)));
    if (power < -5 || power >= 6) return value.toExponential(3).replace(/\.?0+e/, "e");
    const text = value.toPrecision(4);
    return text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  /** Digits in groups of three. */
  const grouped = (digits, mark = THIN) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, mark);

  /** A number with an SI prefix and four digits: "43.98 TFLOP". */
  function quantity(value, unit = "") {
    let scaled = number(value);
    let power = 0;
    while (Math.abs(scaled) >= 999.95 && power < PREFIXES.length - 1) {
      scaled /= 1000;
      power += 1;
    }
    const whole = power === 0 && Number.isInteger(scaled);
    return `${whole ? String(scaled) : short(scaled)} ${PREFIXES[power]}${unit}`.trim();
  }

  /** A time: "1.25 ms". */
  function duration(seconds) {
    if (seconds >= 1 || seconds === 0) return quantity(seconds, "s");
    let scaled = seconds;
    let power = 0;
    while (scaled < 0.99995 && power < SMALL.length - 1) {
      scaled *= 1000;
      power += 1;
    }
    return `${short(scaled)} ${SMALL[power]}s`;
  }

  /** A share as percent, with one digit where it is small. */
  function percent(share) {
    if (share > 0 && share < 0.001) return "<0.1" + THIN + "%";
    return `${share < 0.0995 ? Number((100 * share).toFixed(1)) : Math.round(100 * share)}${THIN}%`;
  }

  /** All digits of a whole number, else what a Number shows. */
  const digits = (value) => (typeof value === "bigint" ? String(value) : String(number(value)));

  /** A measure's value in a cell, short. */
  function shown(value, unit) {
    if (value === null) return NOTHING;
    if (number(value) === 0) return "0";
    return unit === "s" ? duration(value) : quantity(value, unit);
  }

  /** A measure's value in a tooltip: all its digits. */
  function full(value, unit) {
    if (value === null) return "";
    const text = typeof value === "bigint" ? grouped(String(value)) : String(number(value));
    return `${text} ${unit}`.trim();
  }

  /** The size that someone typed as a BigInt; throws an Error that says what a size is. */
  function sizeOf(text) {
    const plain = text.trim();
    const long = `a size of more than ${LONGEST} digits is none that anyone means`;
    const power = /^(\d+)\s*(?:\*\*|\^)\s*(\d+)$/.exec(plain);
    const float = /^(\d+)(?:\.(\d+))?[eE]\+?(\d+)$/.exec(plain);
    let size = null;
    if (
      /^\d+$/.test(plain) ||
      /^\d{1,3}([_,\u202f\u00a0 ])\d{3}(\1\d{3})*$/.test(plain) ||
      /^\d+(_\d+)+$/.test(plain)
    ) {
      size = BigInt(plain.replace(/\D/g, "").slice(0, LONGEST + 1));
    } else if (power) {
      if (Number(power[2]) * Math.log10(Number(power[1]) || 1) > LONGEST + 1) throw new Error(long);
      size = BigInt(power[1]) ** BigInt(power[2]);
    } else if (float && Number(float[3]) <= LONGEST && (float[2] || "").length <= Number(float[3])) {
      size = BigInt(float[1] + (float[2] || "") + "0".repeat(Number(float[3]) - (float[2] || "").length));
    }
    if (size === null || size < 1n) throw new Error(plain === "" ? HINT : `${plain} is no size: ${HINT}`);
    if (String(size).length > LONGEST) throw new Error(long);
    return size;
  }

  /** The larger and the smaller of sortable values; what has no value comes last either way. */
  function order(a, b) {
    if (a === null || b === null) return a === b ? 0 : null;
    if (typeof a === "number" || typeof b === "number") return number(a) - number(b);
    return typeof a === "string" ? (a < b ? -1 : a > b ? 1 : 0) : compare(a, b);
  }

  Symacct.words = { NOTHING, quantity, duration, percent, digits, shown, full, grouped, short, sizeOf, order };
})();
