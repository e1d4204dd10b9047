// Round values for axes. They are always few: an axis of any size, linear or logarithmic, is found at once.

const MULTIPLES = [1, 2, 5, 10];

export function step(low, high, target = 5) {
  const raw = high / target - low / target || 1,
    power = 10 ** Math.floor(Math.log10(raw));
  return MULTIPLES.map((n) => n * power).find((one) => one >= raw * (1 - 1e-9)) ?? 10 * power;
}

export function linear(low, high, target = 5) {
  const one = step(low, high, target),
    first = Math.ceil(low / one - 1e-9),
    last = Math.floor(high / one + 1e-9);
  if (!(Number.isSafeInteger(first) && last - first <= 4 * target)) return [low, high];
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, n) => Number(((first + n) * one).toPrecision(12)));
}

// Powers of ten, with twice and five times them where they are few; round linear values within one decade.
export function logarithmic(low, high, target = 6) {
  const first = Math.floor(Math.log10(low)),
    last = Math.ceil(Math.log10(high));
  if (!Number.isFinite(first) || !Number.isFinite(last)) return [];
  const every = Math.max(1, Math.ceil((last - first) / target)),
    factors = last - first <= 3 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = first; power <= last; power += every)
    for (const factor of factors) found.push(Number(`${factor}e${power}`));
  const inside = found.filter((one) => one >= low && one <= high);
  return inside.length > 1 ? inside : linear(low, high, target);
}
