// The machine's side of the conversation with its host. step is all that the child calls.

const { __block: nativeBlock, __entropy: nativeEntropy, __intl: nativeIntl } = globalThis;
for (const name of ["__block", "__entropy", "__intl", "__subtle", "__url", "__wasm"]) delete globalThis[name];

const RealDate = Date;
const RealFunction = Function;
const EngineError = InternalError;
const { parse, stringify } = JSON;
const { freeze, defineProperty } = Object;

let clock = 0; // in milliseconds; only the host and timers move it
let config;
let end; // how the module ended, once it has

// ---- chance

let drawn = "";
function randomBytes(n) {
  const out = new Uint8Array(n);
  for (let i = 0; i < n; i++) {
    if (drawn === "") drawn = nativeEntropy();
    out[i] = parseInt(drawn.slice(0, 2), 16);
    drawn = drawn.slice(2);
  }
  return out;
}

function random() {
  let n = 0;
  const b = randomBytes(7);
  for (let i = 0; i < 6; i++) n = n * 256 + b[i];
  return (n * 32 + (b[6] & 31)) / 2 ** 53;
}

const crypto = freeze({
  subtle,
  getRandomValues(into) {
    const bytes = bytesOf(into);
    if (!bytes || into instanceof Float32Array || into instanceof Float64Array) throw new TypeError("getRandomValues takes an array of integers");
    if (bytes.length > 65536) throw new DOMException(`${bytes.length} random bytes are too many at a time; 65536 are the most`, "QuotaExceededError");
    bytes.set(randomBytes(bytes.length));
    return into;
  },
  randomUUID() {
    const b = randomBytes(16);
    b[6] = (b[6] & 15) | 0x40;
    b[8] = (b[8] & 63) | 0x80;
    let hex = "";
    for (const byte of b) hex += byte.toString(16).padStart(2, "0");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
  },
});

// ---- time

function HostDate(...args) {
  if (!new.target) return new RealDate(clock).toString();
  return Reflect.construct(RealDate, args.length ? args : [clock], new.target === HostDate ? RealDate : new.target);
}

let timers = [];
let timerID = 0;
function setTimer(what, after, args, again) {
  if (typeof what !== "function") throw new TypeError("a timer takes a function");
  if (timers.length >= 10000) throw new RangeError("there are 10000 timers already, which is the most");
  after = Math.max(0, Math.min(Math.trunc(Number(after)) || 0, 2 ** 31 - 1));
  timers.push({ id: ++timerID, what, args, due: clock + after, every: again ? Math.max(1, after) : 0 });
  return timerID;
}
function clearTimer(id) { timers = timers.filter((t) => t.id !== id); }
function firstTimer() {
  let first;
  for (const t of timers) if (!first || t.due < first.due || (t.due === first.due && t.id < first.id)) first = t;
  return first;
}
function fireTimer() {
  const t = firstTimer();
  if (!t) return;
  clock = Math.max(clock, t.due);
  if (t.every) t.due += t.every;
  else clearTimer(t.id);
  guard(() => t.what(...t.args));
}

// guard runs what nobody waits for: as elsewhere, what it throws ends the program.
function guard(run) {
  try { run(); } catch (e) { fail(e); }
}

// ---- what it writes

const maxLogs = 1 << 20, maxText = 8192; // characters: of all lines, and of one text
let logs = [], logged = 0;
function log(source, level, args) {
  if (logged > maxLogs) return;
  let text = short(args.map(shown).join(" "));
  logged += text.length + 32;
  if (logged > maxLogs) text = "what it writes from here on is left out: it wrote more than a run needs";
  // Only strings become JSON here: what toJSON says of objects is the module's to decide.
  logs.push(`{"Source":${stringify(source)},"Level":${stringify(level)},"Text":${stringify(text)}}`);
}
function short(text) { return text.length > maxText ? text.slice(0, maxText) + "…" : text; }
function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return describe(value);
  if (typeof value === "object" && value !== null) {
    try { return stringify(value) ?? String(value); } catch { return Object.prototype.toString.call(value); }
  }
  return typeof value === "function" ? `[Function: ${value.name || "anonymous"}]` : String(value);
}
function describe(e) {
  try {
    if (e instanceof Error) return e.message ? `${e.name}: ${e.message}` : String(e.name);
    return shown(e);
  } catch { return "something that cannot be shown"; }
}

function makeConsole() {
  const counts = new Map(), begun = new Map();
  const line = (level) => (...args) => log("console", level, args);
  return {
    debug: line("debug"), log: line("info"), info: line("info"), warn: line("warn"), error: line("error"), trace: line("debug"),
    dir: line("info"), table: line("info"), group: line("info"), groupCollapsed: line("info"), groupEnd() {},
    assert(good, ...args) { if (!good) log("console", "error", ["Assertion failed:", ...args]); },
    count(label = "default") {
      counts.set(label, (counts.get(label) ?? 0) + 1);
      log("console", "info", [`${label}: ${counts.get(label)}`]);
    },
    countReset(label = "default") { counts.delete(label); },
    time(label = "default") { begun.set(label, clock); },
    timeLog(label = "default", ...args) { log("console", "info", [`${label}: ${clock - (begun.get(label) ?? clock)} ms`, ...args]); },
    timeEnd(label = "default") { log("console", "info", [`${label}: ${clock - (begun.get(label) ?? clock)} ms`]); begun.delete(label); },
  };
}

// ---- host

let calls = [], callsSize = 0, callID = 0, waiting = 0;
const pending = Object.create(null);

// replacer has bytes travel as text, and what JSON has no word for as it usually does.
function replacer(name, value) {
  const bytes = typeof value === "object" && value !== null ? bytesOf(value) : undefined;
  return bytes ? { $base64: base64Encode(bytes) } : value;
}

function hostCall(method, args) {
  return new Promise((resolve, reject) => {
    const signal = method === "network.fetch" ? args[1]?.signal : undefined;
    if (signal instanceof AbortSignal) {
      signal.throwIfAborted();
      args = [args[0], { ...args[1], signal: undefined }, ...args.slice(2)];
    }

    const text = stringify(args, replacer);
    if (callsSize + text.length > config.most) {
      throw new RangeError(`the arguments of ${method} come to ${text.length} characters, and what is called at a time must not be over ${config.most}`);
    }
    // The answers to blocking calls are here already when the module makes the next one.
    if ((waiting >= config.waiting && !blocking[method]) || calls.length >= config.waiting) throw new RangeError(`${config.waiting} calls wait for their answers already, which is the most`);

    // A module that does not wait for it may ask for the number right behind it.
    if (method === "run.reportStep") getters["run.getStepCount"]++;

    const id = ++callID;
    callsSize += text.length;
    calls.push(`{"ID":${id},"Method":${stringify(method)},"Args":${text}}`);
    pending[id] = { resolve, reject, method, stack: new Error().stack };
    waiting++;
    if (signal instanceof AbortSignal) signal.addEventListener("abort", () => settle(id, ({ reject }) => reject(signal.reason)));
    // Whatever stands behind the call runs when the host lets it, or never.
    if (blocking[method]) setGetters(parse(nativeBlock()));
  });
}

function settle(id, how) {
  const p = pending[id];
  if (!p) return;
  delete pending[id];
  waiting--;
  how(p);
}

function answer(a, text) {
  setGetters(a.Getters ?? {});
  if (a.NowMS) clock = Math.max(clock, a.NowMS);
  settle(a.ID, ({ resolve, reject, method, stack }) => {
    if (a.Error) {
      const e = new Error(a.Error.Message);
      if (a.Error.Name) defineProperty(e, "name", { value: a.Error.Name, writable: true, configurable: true });
      if (a.Error.Code) e.code = a.Error.Code;
      defineProperty(e, "stack", { value: stack, writable: true, configurable: true }); // of the call: it failed there
      return reject(e);
    }
    try {
      const value = text === "" ? undefined : parse(text);
      resolve(method === "network.fetch" && value ? new Response(value) : value);
    } catch (e) { reject(e); } // it is nested more deeply than can be read
  });
}

const blocking = Object.create(null); // methods, by name
const getters = Object.create(null);
function setGetters(values) {
  for (const name of Object.keys(values)) getters[name] = values[name];
}
const logLevels = ["debug", "info", "warn", "error"];

function makeHost() {
  const host = {};
  // put sets what a path below host leads to, and makes the objects on the way.
  const put = (path, value) => {
    const names = path.split(".");
    const last = names.pop();
    let at = host;
    for (const name of names) {
      if (!Object.hasOwn(at, name)) defineProperty(at, name, { value: {}, enumerable: true });
      at = at[name];
    }
    if (!Object.hasOwn(at, last)) defineProperty(at, last, { value, enumerable: true });
  };

  if (config.methods.some((m) => m === "log" || m.startsWith("log."))) {
    const callable = (level, ...args) => {
      const known = logLevels.includes(level);
      log("host", known ? level : "info", known ? args : [level, ...args]);
    };
    for (const level of logLevels) defineProperty(callable, level, { value: (...args) => log("host", level, args), enumerable: true });
    put("log", callable);
  }
  for (const method of config.methods) {
    if (method === "log" || method.startsWith("log.")) continue;
    put(method, method === "wasm.instantiate" ? wasmInstantiate : (...args) => hostCall(method, args));
  }
  for (const name of Object.keys(config.getters ?? {})) {
    getters[name] = config.getters[name];
    put(name, () => parse(stringify(getters[name])));
  }
  for (const name of Object.keys(config.constants ?? {})) put(name, config.constants[name]);
  return deepFreeze(host);
}

function deepFreeze(value) {
  if ((typeof value !== "object" && typeof value !== "function") || value === null || Object.isFrozen(value)) return value;
  freeze(value);
  for (const name of Reflect.ownKeys(value)) deepFreeze(value[name]);
  return value;
}

// ---- what exists

function makeGlobals(host) {
  return {
    AbortController, AbortSignal, TextDecoder, TextEncoder, URL, URLSearchParams, atob, btoa, crypto, structuredClone,
    console: makeConsole(),
    setTimeout: (what, after, ...args) => setTimer(what, after, args, false),
    setInterval: (what, after, ...args) => setTimer(what, after, args, true),
    clearTimeout: clearTimer,
    clearInterval: clearTimer,
    queueMicrotask(what) {
      if (typeof what !== "function") throw new TypeError("queueMicrotask takes a function");
      Promise.resolve().then(() => guard(what));
    },
    fetch: host.network?.fetch,
    performance: freeze({ timeOrigin: config.now, now: () => clock - config.now }),
  };
}

function hide(name, value) { defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false }); }

// noCode takes away what makes programs of texts: what runs is what was compiled.
function noCode() {
  const refuse = function Function() { throw new EvalError("a module cannot make code of a text"); };
  const kinds = [function () {}, async function () {}, function* () {}, async function* () {}];
  for (const kind of kinds) {
    const proto = Object.getPrototypeOf(kind);
    defineProperty(proto, "constructor", { value: refuse, writable: false, configurable: false });
  }
  defineProperty(refuse, "prototype", { value: RealFunction.prototype, writable: false });
  hide("Function", refuse);
  delete globalThis.eval;
}

// lateIntl adds Intl when it is first needed.
function lateIntl(named) {
  let added = false;
  const add = () => {
    if (added) return;
    added = true;
    nativeIntl();
    const intl = globalThis.Intl;
    if (named) hide("Intl", intl);
    else delete globalThis.Intl;
  };

  for (const [proto, names] of [[RealDate.prototype, ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]], [Number.prototype, ["toLocaleString"]]]) {
    for (const name of names) {
      const late = { [name](...args) { add(); return proto[name].apply(this, args); } }[name];
      defineProperty(proto, name, { value: late, writable: true, configurable: true, enumerable: false });
    }
  }
  if (named) defineProperty(globalThis, "Intl", { get() { delete globalThis.Intl; add(); return globalThis.Intl; }, configurable: true, enumerable: false });
}

function start(text) {
  config = parse(text);
  config.methods ??= [];
  for (const method of config.blocking ?? []) blocking[method] = true;
  clock = config.now;

  defineProperty(HostDate, "name", { value: "Date" });
  defineProperty(HostDate, "length", { value: 7 });
  defineProperty(HostDate, "prototype", { value: RealDate.prototype, writable: false });
  for (const [name, value] of [["now", () => clock], ["parse", RealDate.parse], ["UTC", RealDate.UTC]]) {
    defineProperty(HostDate, name, { value, writable: true, configurable: true, enumerable: false });
  }
  defineProperty(RealDate.prototype, "constructor", { value: HostDate, writable: true, configurable: true, enumerable: false });
  hide("Date", HostDate);
  defineProperty(Math, "random", { value: random, writable: true, configurable: true, enumerable: false });

  noCode();
  lateIntl(config.globals.includes("Intl"));
  config.host = makeHost();
  const all = makeGlobals(config.host);
  for (const name of config.globals) if (all[name] !== undefined) hide(name, all[name]);
}

// ---- the program

function fail(e) {
  if (end) return;
  end = { Status: "threw", Error: short(describe(e)), Stack: "" };
  try {
    // The engine throws null when there is not even memory for an error.
    if (e === null || (e instanceof EngineError && e.message === "out of memory")) end.Status = "memory";
    else if (e instanceof Error) end.Stack = short(String(e.stack ?? ""));
  } catch {} // of what cannot be looked at, there is no stack
}

function begin() {
  import("module.js").then(async (module) => {
    const run = module[config.export];
    if (typeof run !== "function") throw new TypeError(`module.ts exports no function ${config.export}`);

    const value = stringify(await (config.hostAlone ? run(config.host) : run(config.args, config.host)), replacer);
    if (value !== undefined && value.length > config.most) throw new RangeError(`the result comes to ${value.length} characters, and ${config.most} are the most; return less, or share it as a file`);
    end ??= { Status: "returned", Value: value };
  }).catch(fail);
}

// drain is JSON of what happened since the last one.
function drain() {
  let out = `{"Calls":[${calls.join(",")}],"Logs":[${logs.join(",")}]`;
  if (end) {
    out += `,"End":{"Status":${stringify(end.Status)},"Error":${stringify(end.Error ?? "")},"Stack":${stringify(end.Stack ?? "")}`;
    out += end.Value === undefined ? "}" : `,"Value":${end.Value}}`;
  }
  calls = [];
  logs = [];
  callsSize = 0;
  return out + "}";
}

return function step(what, arg, value, words) {
  switch (what) {
    case "start": return start(arg);
    case "begin": return begin();
    case "answer": return answer(parse(arg), value);
    case "fire": return fireTimer();
    case "clock": clock = Math.max(clock, arg); return;
    case "due": return firstTimer()?.due ?? null;
    case "waiting": return waiting > 0;
    case "drain": return drain();
    case "import": return wasmImport(arg, value, words);
  }
};
