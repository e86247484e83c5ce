// SHA-256 of a file of any size, in a worker of its own. crypto.subtle takes whole buffers only, and only on https or this machine.

const SLICE = 4 << 20; // bytes read at a time
const K = new Uint32Array(64), START = new Uint32Array(8);

// The first 32 bits of the fractional parts of the cube roots, and square roots, of the first primes (FIPS 180-4).
for (let candidate = 2, found = 0; found < 64; candidate += 1) {
  let prime = true;
  for (let divisor = 2; divisor * divisor <= candidate; divisor += 1) if (candidate % divisor === 0) prime = false;
  if (!prime) continue;
  if (found < 8) START[found] = fraction(Math.sqrt(candidate));
  K[found] = fraction(Math.cbrt(candidate));
  found += 1;
}

function fraction(number) {
  return Math.floor((number - Math.floor(number)) * 2 ** 32) >>> 0;
}

export class Sha256 {
  #state = START.slice();
  #words = new Uint32Array(64);
  #rest = new Uint8Array(64);
  #kept = 0; // bytes in #rest
  #length = 0;

  update(bytes) {
    this.#length += bytes.length;
    let at = 0;
    if (this.#kept) {
      at = Math.min(64 - this.#kept, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#kept);
      this.#kept += at;
      if (this.#kept < 64) return this;
      this.#block(this.#rest, 0);
      this.#kept = 0;
    }
    for (; at + 64 <= bytes.length; at += 64) this.#block(bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#kept = bytes.length - at;
    return this;
  }

  hex() {
    const length = this.#length;
    const end = new Uint8Array(this.#kept < 56 ? 64 - this.#kept : 128 - this.#kept);
    end[0] = 0x80;
    const view = new DataView(end.buffer);
    view.setUint32(end.length - 8, Math.floor(length / 2 ** 29));
    view.setUint32(end.length - 4, (length * 8) >>> 0);
    this.update(end);
    return Array.from(this.#state, (word) => word.toString(16).padStart(8, "0")).join("");
  }

  #block(bytes, at) {
    const w = this.#words, s = this.#state;
    for (let i = 0; i < 16; i += 1, at += 4) w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
    for (let i = 16; i < 64; i += 1) {
      const a = w[i - 15], b = w[i - 2];
      w[i] = (w[i - 16] + w[i - 7] + (((a >>> 7) | (a << 25)) ^ ((a >>> 18) | (a << 14)) ^ (a >>> 3))
        + (((b >>> 17) | (b << 15)) ^ ((b >>> 19) | (b << 13)) ^ (b >>> 10))) | 0;
    }
    let a = s[0] | 0, b = s[1] | 0, c = s[2] | 0, d = s[3] | 0, e = s[4] | 0, f = s[5] | 0, g = s[6] | 0, h = s[7] | 0;
    for (let i = 0; i < 64; i += 1) {
      const t = (h + (((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7))) + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const u = ((((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10))) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t) | 0; d = c; c = b; b = a; a = (t + u) | 0;
    }
    s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
  }
}

// In the page: the digest of a file, computed beside it by one worker, which needs the server only when it starts.
let worker = null;
let asked = 0;
const waiting = new Map(); // number of a file → how its promise is settled

export function sha256(file) {
  return new Promise((resolve, reject) => {
    waiting.set(asked += 1, { resolve, reject });
    (worker ??= begun()).postMessage({ number: asked, file });
  });
}

function begun() {
  const begins = new Worker(import.meta.url, { type: "module" });
  begins.onmessage = ({ data: { number, hex, problem } }) => {
    const { resolve, reject } = waiting.get(number);
    waiting.delete(number);
    if (hex) resolve(hex);
    else reject(new Error(problem));
  };
  begins.onerror = () => { // its script did not come
    worker = null;
    for (const { reject } of waiting.values()) reject(Object.assign(new Error("The server does not answer."), { status: 0 }));
    waiting.clear();
  };
  return begins;
}

// In the worker.
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  self.onmessage = async ({ data: { number, file } }) => {
    const digest = new Sha256();
    try {
      for (let at = 0; at < file.size; at += SLICE) digest.update(new Uint8Array(await file.slice(at, at + SLICE).arrayBuffer()));
      self.postMessage({ number, hex: digest.hex() });
    } catch {
      self.postMessage({ number, problem: "the file cannot be read" });
    }
  };
}
