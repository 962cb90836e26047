// WebAssembly as a module sees it. The engine is beside this one: values go there as the words of its stack.

const nativeWASM = globalThis.__wasm;

class RuntimeError extends Error {}
class LinkError extends Error {}
class CompileError extends Error {}
for (const kind of [RuntimeError, LinkError, CompileError]) {
  Object.defineProperty(kind.prototype, "name", { value: kind.name, writable: true, configurable: true });
}
const wasmErrors = { RuntimeError, LinkError, CompileError, RangeError, TypeError };

const wasmImports = []; // of each instance, by its number: functions, with their types
let wasmThrown; // by an imported function, in brackets

function wasmCall(...args) {
  try {
    return nativeWASM(...args);
  } catch (e) {
    const thrown = wasmThrown;
    wasmThrown = undefined;
    const [kind, ...text] = String(e?.message).split("|");
    if (kind === "thrown" && thrown) throw thrown[0];
    throw wasmErrors[kind] ? new wasmErrors[kind](text.join("|")) : e;
  }
}

const wasmWord = new DataView(new ArrayBuffer(8));

// wasmIn writes values of some types as words of the engine's stack: decimal numbers of 64 bits, separated by commas.
function wasmIn(types, values) {
  return types.map((type, i) => {
    wasmWord.setBigUint64(0, 0n, true);
    if (type === "i64") {
      if (typeof values[i] !== "bigint") throw new TypeError(`an i64 is a BigInt, and ${typeof values[i]} was given`);
      wasmWord.setBigInt64(0, BigInt.asIntN(64, values[i]), true);
    } else if (type === "i32") wasmWord.setInt32(0, Number(values[i]), true);
    else if (type === "f32") wasmWord.setFloat32(0, Number(values[i]), true);
    else wasmWord.setFloat64(0, Number(values[i]), true);
    return String(wasmWord.getBigUint64(0, true));
  }).join(",");
}

// wasmOut reads values of some types from words.
function wasmOut(types, words) {
  const list = words.split(",");
  return types.map((type, i) => {
    wasmWord.setBigUint64(0, BigInt(list[i]), true);
    if (type === "i64") return wasmWord.getBigInt64(0, true);
    if (type === "i32") return wasmWord.getInt32(0, true);
    return type === "f32" ? wasmWord.getFloat32(0, true) : wasmWord.getFloat64(0, true);
  });
}

function wasmExport(number, { name, params, results }) {
  return (...args) => {
    const values = wasmOut(results, wasmCall("call", number, name, wasmIn(params, args)));
    return results.length > 1 ? values : values[0];
  };
}

// wasmImport calls a function for an instance.
function wasmImport(number, at, words) {
  const { call, params, results } = wasmImports[number][at];
  try {
    const value = call(...wasmOut(params, words));
    return wasmIn(results, results.length > 1 ? [...value] : [value]);
  } catch (e) {
    wasmThrown = [e];
    throw e;
  }
}

// wasmLink finds the functions that an instance imports among what the module has for it.
function wasmLink(wanted, given) {
  return (wanted ?? []).map(({ module, name, params, results }) => {
    const call = given?.[module]?.[name];
    if (typeof call !== "function") throw new LinkError(`it imports the function ${module}.${name}; give it as {${JSON.stringify(module)}: {${JSON.stringify(name)}: …}} among the imports`);
    return { call, params, results };
  });
}

async function wasmInstantiate(id, imports) {
  id = String(id);
  const { imports: wanted, exports, memory } = JSON.parse(wasmCall("describe", id));
  wasmImports.push(wasmLink(wanted, imports)); // of the next number, for a start function calls them at once
  let number;
  try {
    number = wasmCall("instantiate", id);
  } finally {
    if (number === undefined) wasmImports.length--;
  }

  const instance = { exports: {} };
  for (const f of exports ?? []) Object.defineProperty(instance.exports, f.name, { value: wasmExport(number, f), enumerable: true });
  if (memory) instance.memory = wasmMemory(number);
  return deepFreeze(instance);
}

// wasmMemory reads and writes copies: a part of the memory is nowhere but in the instance.
function wasmMemory(number) {
  return {
    size: () => wasmCall("size", number),
    read(offset, length) {
      const text = wasmCall("read", number, Number(offset), Number(length));
      const out = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
      return out;
    },
    write(offset, bytes) {
      bytes = bytesOf(bytes);
      if (!bytes) throw new TypeError("what is written is bytes: a Uint8Array, an ArrayBuffer, a view of one");
      wasmCall("write", number, Number(offset), bytes.length, latin1(bytes));
    },
  };
}

// latin1 is a text with a character for each byte.
function latin1(bytes) {
  const parts = [];
  for (let i = 0; i < bytes.length; i += 8192) parts.push(String.fromCharCode.apply(null, bytes.subarray(i, i + 8192)));
  return parts.join("");
}
