// Numbers, sizes and times as people read them. What is unknown is a dash, never a zero.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// 12,345
export const count = (value) => (isNumber(value) ? whole.format(Math.round(value)) : UNKNOWN);

// 12.3K: where there is little room
export const compact = (value) =>
  !isNumber(value)
    ? UNKNOWN
    : Math.abs(value) < 10_000
      ? whole.format(Math.round(value))
      : short.format(value);

// 1.5 GiB
export function bytes(value) {
  if (!isNumber(value)) return UNKNOWN;
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < SIZES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 || Number.isInteger(size) ? 0 : 1;
  return `${value < 0 ? "-" : ""}${size.toFixed(digits)} ${SIZES[unit]}`;
}

// 0.4, 12, 3,400: a rate without its unit
export function rate(value) {
  if (!isNumber(value)) return UNKNOWN;
  if (value > 0 && value < 10) return value.toFixed(1);
  return compact(value);
}

export const perSecond = (value) => (isNumber(value) ? `${rate(value)}/s` : UNKNOWN);
export const bytesPerSecond = (value) => (isNumber(value) ? `${bytes(value)}/s` : UNKNOWN);

// 0.42 ms, 12 ms, 1.3 s
export function milliseconds(value) {
  if (!isNumber(value)) return UNKNOWN;
  if (value === 0) return "0 ms";
  if (value >= 1_000) return `${(value / 1_000).toFixed(value >= 10_000 ? 0 : 1)} s`;
  return `${value < 10 ? value.toFixed(value < 1 ? 2 : 1) : Math.round(value)} ms`;
}

export const percent = (share) =>
  isNumber(share) ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %` : UNKNOWN;

// 3 d 4 h, 12 min, 8 s
export function duration(seconds) {
  if (!isNumber(seconds)) return UNKNOWN;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400)
    return twoUnits(Math.floor(seconds / 3_600), "h", Math.floor((seconds % 3_600) / 60), "min");
  return twoUnits(Math.floor(seconds / 86_400), "d", Math.floor((seconds % 86_400) / 3_600), "h");
}

const twoUnits = (large, largeUnit, small, smallUnit) =>
  `${large} ${largeUnit}${small ? ` ${small} ${smallUnit}` : ""}`;

const two = (value) => String(value).padStart(2, "0");
const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;

// 2026-11-16 09:00:00.123, in the time of this browser
export function moment(value) {
  const at = new Date(value);
  if (value === null || value === undefined || Number.isNaN(at.getTime())) return UNKNOWN;
  return `${day(at)} ${clock(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// UTC+01:00, as it was in this browser at that moment
export function zone(value) {
  const minutes = -new Date(value).getTimezoneOffset();
  if (!minutes) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

export const isToday = (value) => day(new Date(value)) === day(new Date());

// 09:00:00.123 today, else with the day
export function shortMoment(value) {
  const text = moment(value);
  return text !== UNKNOWN && isToday(value) ? text.slice(11) : text.slice(0, 19);
}

export function ago(value) {
  const seconds = (Date.now() - new Date(value).getTime()) / 1_000;
  if (!isNumber(seconds)) return UNKNOWN;
  return seconds < 2 ? "just now" : `${duration(seconds)} ago`;
}

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
