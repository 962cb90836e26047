// What a machine has beside the language. core.js decides which of it a module gets.
"use strict";

const nativeURL = globalThis.__url;

class DOMException extends Error {
  constructor(message = "", name = "Error") {
    super(message);
    Object.defineProperty(this, "name", { value: name, configurable: true, writable: true });
  }
}

// ---- text and bytes

function utf8Encode(text) {
  const out = [];
  for (const char of text) {
    let c = char.codePointAt(0);
    if (c >= 0xd800 && c <= 0xdfff) c = 0xfffd; // half of a pair
    if (c < 0x80) out.push(c);
    else if (c < 0x800) out.push(0xc0 | (c >> 6), 0x80 | (c & 63));
    else if (c < 0x10000) out.push(0xe0 | (c >> 12), 0x80 | ((c >> 6) & 63), 0x80 | (c & 63));
    else out.push(0xf0 | (c >> 18), 0x80 | ((c >> 12) & 63), 0x80 | ((c >> 6) & 63), 0x80 | (c & 63));
  }
  return new Uint8Array(out);
}

// bytesOf are those behind a buffer or a view of one; undefined where it is none.
function bytesOf(value) {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return undefined;
}

function utf8Decode(bytes, fatal) {
  let out = "";
  for (let i = 0; i < bytes.length; ) {
    const b = bytes[i++];
    if (b < 0x80) {
      out += String.fromCharCode(b);
      continue;
    }

    // How many bytes follow, and what the first of them may be.
    let more = 0, low = 0x80, high = 0xbf, c = 0;
    if (b >= 0xc2 && b <= 0xdf) { more = 1; c = b & 31; }
    else if (b >= 0xe0 && b <= 0xef) { more = 2; c = b & 15; if (b === 0xe0) low = 0xa0; if (b === 0xed) high = 0x9f; }
    else if (b >= 0xf0 && b <= 0xf4) { more = 3; c = b & 7; if (b === 0xf0) low = 0x90; if (b === 0xf4) high = 0x8f; }

    let good = more > 0;
    for (; good && more > 0; more--, low = 0x80, high = 0xbf) {
      if (i >= bytes.length || bytes[i] < low || bytes[i] > high) good = false;
      else c = (c << 6) | (bytes[i++] & 63);
    }
    if (!good && fatal) throw new TypeError("The encoded data was not valid utf-8");
    out += good ? String.fromCodePoint(c) : "\ufffd";
  }
  return out;
}

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return utf8Encode(String(text)); }
  encodeInto(text, into) {
    let read = 0, written = 0;
    for (const char of String(text)) {
      const bytes = utf8Encode(char);
      if (written + bytes.length > into.length) break;
      into.set(bytes, written);
      written += bytes.length;
      read += char.length;
    }
    return { read, written };
  }
}

class TextDecoder {
  #fatal;
  #keep;
  constructor(label = "utf-8", options = {}) {
    if (!/^\s*(utf-?8|unicode-1-1-utf-8)\s*$/i.test(label)) throw new RangeError(`The encoding ${label} is not supported; utf-8 is`);
    this.#fatal = !!options.fatal;
    this.#keep = !!options.ignoreBOM;
  }
  get encoding() { return "utf-8"; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#keep; }
  decode(input = new Uint8Array()) {
    const bytes = bytesOf(input);
    if (!bytes) throw new TypeError("decode takes bytes");
    const text = utf8Decode(bytes, this.#fatal);
    return !this.#keep && text.startsWith("\ufeff") ? text.slice(1) : text;
  }
}

const base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function base64Encode(bytes) {
  let out = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const n = (bytes[i] << 16) | ((bytes[i + 1] ?? 0) << 8) | (bytes[i + 2] ?? 0);
    out += base64[n >> 18] + base64[(n >> 12) & 63] + (i + 1 < bytes.length ? base64[(n >> 6) & 63] : "=") + (i + 2 < bytes.length ? base64[n & 63] : "=");
  }
  return out;
}

function base64Decode(text) {
  text = text.replace(/[\t\n\f\r ]/g, "");
  if (text.length % 4 === 0) text = text.replace(/={1,2}$/, "");
  if (text.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(text)) throw new DOMException("The string to be decoded is not correctly encoded.", "InvalidCharacterError");

  const out = new Uint8Array(Math.floor((text.length * 3) / 4));
  let n = 0, bits = 0, at = 0;
  for (const char of text) {
    n = ((n << 6) | base64.indexOf(char)) & 0xffffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out[at++] = (n >> bits) & 255;
    }
  }
  return out;
}

function btoa(text) {
  text = String(text);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c > 255) throw new DOMException("The string to be encoded contains characters outside of the Latin1 range.", "InvalidCharacterError");
    bytes[i] = c;
  }
  return base64Encode(bytes);
}

function atob(text) {
  let out = "";
  for (const b of base64Decode(String(text))) out += String.fromCharCode(b);
  return out;
}

// ---- addresses

class URLSearchParams {
  #list = [];
  #changed = () => {};
  constructor(init = "") {
    if (typeof init === "object" && init !== null) {
      const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
      for (const pair of pairs) {
        const [name, value, ...rest] = pair;
        if (value === undefined || rest.length > 0) throw new TypeError("Each pair of a URLSearchParams has a name and a value");
        this.#list.push([String(name), String(value)]);
      }
    } else {
      this.#read(String(init));
    }
  }
  // A URL keeps its parameters and its search the same.
  static of(search, changed) {
    const params = new URLSearchParams(search);
    params.#changed = changed;
    return params;
  }
  static reread(params, search) { params.#read(search); }
  #read(text) {
    this.#list = [];
    for (const part of text.replace(/^\?/, "").split("&")) {
      if (part === "") continue;
      const at = part.indexOf("=");
      const [name, value] = at < 0 ? [part, ""] : [part.slice(0, at), part.slice(at + 1)];
      this.#list.push([unescapeForm(name), unescapeForm(value)]);
    }
  }
  get size() { return this.#list.length; }
  append(name, value) { this.#list.push([String(name), String(value)]); this.#changed(); }
  delete(name, value) {
    this.#list = this.#list.filter(([n, v]) => n !== String(name) || (value !== undefined && v !== String(value)));
    this.#changed();
  }
  get(name) { return this.#list.find(([n]) => n === String(name))?.[1] ?? null; }
  getAll(name) { return this.#list.filter(([n]) => n === String(name)).map(([, v]) => v); }
  has(name, value) { return this.#list.some(([n, v]) => n === String(name) && (value === undefined || v === String(value))); }
  set(name, value) {
    const at = this.#list.findIndex(([n]) => n === String(name));
    if (at < 0) this.#list.push([String(name), String(value)]);
    else {
      this.#list[at][1] = String(value);
      this.#list = this.#list.filter(([n], i) => i <= at || n !== String(name));
    }
    this.#changed();
  }
  sort() { this.#list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)); this.#changed(); }
  forEach(each, that) { for (const [name, value] of [...this.#list]) each.call(that, value, name, this); }
  *entries() { for (const [name, value] of this.#list) yield [name, value]; }
  *keys() { for (const [name] of this.#list) yield name; }
  *values() { for (const [, value] of this.#list) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#list.map(([name, value]) => escapeForm(name) + "=" + escapeForm(value)).join("&"); }
}
const { of: paramsOf, reread: rereadParams } = URLSearchParams;
delete URLSearchParams.of;
delete URLSearchParams.reread;

function unescapeForm(text) {
  text = text.replace(/\+/g, " ");
  if (!text.includes("%")) return text;
  const bytes = [];
  for (let i = 0; i < text.length; ) {
    if (/^%[0-9a-f]{2}/i.test(text.slice(i, i + 3))) {
      bytes.push(parseInt(text.slice(i + 1, i + 3), 16));
      i += 3;
    } else {
      const char = String.fromCodePoint(text.codePointAt(i));
      bytes.push(...utf8Encode(char));
      i += char.length;
    }
  }
  return utf8Decode(bytes, false);
}

function escapeForm(text) {
  let out = "";
  for (const b of utf8Encode(text)) {
    const char = String.fromCharCode(b);
    if (/[A-Za-z0-9*._-]/.test(char)) out += char;
    else if (b === 32) out += "+";
    else out += "%" + b.toString(16).toUpperCase().padStart(2, "0");
  }
  return out;
}

class URL {
  #parts;
  #params;
  constructor(url, base) { this.#take(String(url), base === undefined ? "" : String(base)); }
  static canParse(url, base) { return URL.parse(url, base) !== null; }
  static parse(url, base) {
    try { return new URL(url, base); } catch { return null; }
  }
  #take(url, base) {
    const parts = JSON.parse(nativeURL(url, base, "", ""));
    if (!parts) throw new TypeError(`Invalid URL: ${url}`);
    this.#parts = parts;
  }
  #set(part, value) {
    this.#parts = JSON.parse(nativeURL(this.#parts.href, "", part, String(value))) ?? this.#parts;
    if (this.#params) rereadParams(this.#params, this.#parts.search);
  }
  get searchParams() {
    return (this.#params ??= paramsOf(this.#parts.search, () => {
      this.#parts = JSON.parse(nativeURL(this.#parts.href, "", "search", this.#params.toString())) ?? this.#parts;
    }));
  }
  get origin() { return this.#parts.origin; }
  get href() { return this.#parts.href; }
  set href(value) { this.#take(String(value), ""); if (this.#params) rereadParams(this.#params, this.#parts.search); }
  get protocol() { return this.#parts.protocol; }
  set protocol(value) { this.#set("protocol", value); }
  get username() { return this.#parts.username; }
  set username(value) { this.#set("username", value); }
  get password() { return this.#parts.password; }
  set password(value) { this.#set("password", value); }
  get host() { return this.#parts.host; }
  set host(value) { this.#set("host", value); }
  get hostname() { return this.#parts.hostname; }
  set hostname(value) { this.#set("hostname", value); }
  get port() { return this.#parts.port; }
  set port(value) { this.#set("port", value); }
  get pathname() { return this.#parts.pathname; }
  set pathname(value) { this.#set("pathname", value); }
  get search() { return this.#parts.search; }
  set search(value) { this.#set("search", value); }
  get hash() { return this.#parts.hash; }
  set hash(value) { this.#set("hash", value); }
  toString() { return this.#parts.href; }
  toJSON() { return this.#parts.href; }
}

// ---- answers of network.fetch

class Headers {
  #map = new Map();
  constructor(init = {}) {
    for (const [name, value] of Object.entries(init)) this.#map.set(name.toLowerCase(), String(value));
  }
  get(name) { return this.#map.get(String(name).toLowerCase()) ?? null; }
  has(name) { return this.#map.has(String(name).toLowerCase()); }
  forEach(each, that) { for (const [name, value] of this.#map) each.call(that, value, name, this); }
  entries() { return this.#map.entries(); }
  keys() { return this.#map.keys(); }
  values() { return this.#map.values(); }
  [Symbol.iterator]() { return this.#map.entries(); }
  toJSON() { return Object.fromEntries(this.#map); }
}

class Response {
  #body;
  #bytes;
  constructor(from) {
    this.url = from.url ?? "";
    this.status = from.status ?? 200;
    this.statusText = from.statusText ?? "";
    this.ok = this.status >= 200 && this.status < 300;
    this.headers = new Headers(from.headers ?? {});
    this.#body = from.body ?? "";
    this.#bytes = from.bodyBase64;
  }
  async text() { return this.#bytes ? utf8Decode(base64Decode(this.#bytes), false) : this.#body; }
  async json() { return JSON.parse(await this.text()); }
  async bytes() { return this.#bytes ? base64Decode(this.#bytes) : utf8Encode(this.#body); }
  async arrayBuffer() { return (await this.bytes()).buffer; }
}

// ---- copies

function structuredClone(value) {
  const known = new Map();
  const refuse = (what) => { throw new DOMException(`${what} could not be cloned.`, "DataCloneError"); };

  const clone = (v) => {
    if (typeof v === "function" || typeof v === "symbol") refuse(String(v));
    if (typeof v !== "object" || v === null) return v;
    if (known.has(v)) return known.get(v);
    const keep = (copy) => { known.set(v, copy); return copy; };

    if (v instanceof Date) return keep(new v.constructor(v.getTime()));
    if (v instanceof RegExp) return keep(new RegExp(v.source, v.flags));
    if (v instanceof Boolean || v instanceof Number || v instanceof String) return keep(Object(v.valueOf()));
    if (v instanceof ArrayBuffer) return keep(v.slice(0));
    if (v instanceof DataView) return keep(new DataView(clone(v.buffer), v.byteOffset, v.byteLength));
    if (ArrayBuffer.isView(v)) return keep(new v.constructor(clone(v.buffer), v.byteOffset, v.length));
    if (v instanceof Map) {
      const copy = keep(new Map());
      for (const [name, item] of v) copy.set(clone(name), clone(item));
      return copy;
    }
    if (v instanceof Set) {
      const copy = keep(new Set());
      for (const item of v) copy.add(clone(item));
      return copy;
    }
    if (v instanceof Error) {
      const copy = keep(Object.create(Object.getPrototypeOf(v)));
      for (const name of ["name", "message", "stack", "cause"]) {
        if (Object.hasOwn(v, name)) Object.defineProperty(copy, name, { value: clone(v[name]), writable: true, configurable: true });
      }
      return copy;
    }
    if (v instanceof Promise || v instanceof WeakMap || v instanceof WeakSet || v instanceof WeakRef) refuse(Object.prototype.toString.call(v));

    const copy = keep(Array.isArray(v) ? new Array(v.length) : {});
    for (const name of Object.keys(v)) {
      Object.defineProperty(copy, name, { value: clone(v[name]), writable: true, enumerable: true, configurable: true });
    }
    return copy;
  };
  return clone(value);
}

// ---- signals

class AbortSignal {
  #reason;
  #aborted = false;
  #listeners = new Set();
  onabort = null;
  get aborted() { return this.#aborted; }
  get reason() { return this.#reason; }
  throwIfAborted() { if (this.#aborted) throw this.#reason; }
  addEventListener(type, listener) { if (type === "abort" && listener) this.#listeners.add(listener); }
  removeEventListener(type, listener) { this.#listeners.delete(listener); }
  static fire(signal, reason) {
    if (signal.#aborted) return;
    signal.#aborted = true;
    signal.#reason = reason ?? new DOMException("This operation was aborted", "AbortError");
    const event = { type: "abort", target: signal };
    signal.onabort?.(event);
    for (const listener of [...signal.#listeners]) {
      if (typeof listener === "function") listener.call(signal, event);
      else listener.handleEvent(event);
    }
  }
  static abort(reason) {
    const signal = new AbortSignal();
    fireSignal(signal, reason);
    return signal;
  }
  static timeout(ms) {
    const signal = new AbortSignal();
    setTimer(() => fireSignal(signal, new DOMException("The operation timed out.", "TimeoutError")), ms, [], false);
    return signal;
  }
  static any(signals) {
    const any = new AbortSignal();
    for (const signal of signals) {
      if (signal.aborted) fireSignal(any, signal.reason);
      else signal.addEventListener("abort", () => fireSignal(any, signal.reason));
    }
    return any;
  }
}
const { fire: fireSignal } = AbortSignal;
delete AbortSignal.fire;

class AbortController {
  #signal = new AbortSignal();
  get signal() { return this.#signal; }
  abort(reason) { fireSignal(this.#signal, reason); }
}
