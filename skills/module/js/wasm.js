// WebAssembly as a module sees it. The engine is beside this one: numbers go there, and an i64 as its two halves.

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

// wasmIn are the numbers for values of some types.
function wasmIn(types, values) {
  const out = [];
  types.forEach((type, i) => {
    if (type === "i64") {
      if (typeof values[i] !== "bigint") throw new TypeError(`an i64 is a BigInt, and ${typeof values[i]} was given`);
      out.push(Number(BigInt.asUintN(32, values[i])), Number(BigInt.asUintN(32, values[i] >> 32n)));
      return;
    }
    const n = Number(values[i]);
    out.push(type === "i32" ? n | 0 : n);
  });
  return out;
}

// wasmOut are the values of some types that numbers stand for.
function wasmOut(types, numbers) {
  let at = 0;
  return types.map((type) => {
    const n = Number(numbers[at++]); // "+Infinity" is one, too
    return type === "i64" ? BigInt.asIntN(64, BigInt(n) | (BigInt(numbers[at++]) << 32n)) : n;
  });
}

function wasmExport(number, { name, params, results }) {
  return (...args) => {
    const given = wasmCall("call", number, name, ...wasmIn(params, args));
    if (results.length === 0) return undefined;
    const values = wasmOut(results, Array.isArray(given) ? given : [given]);
    return results.length === 1 ? values[0] : values;
  };
}

// wasmImport calls a function for an instance, and gives its numbers as JSON.
function wasmImport(number, at, numbers) {
  const { call, params, results } = wasmImports[number][at];
  try {
    const value = call(...wasmOut(params, numbers));
    const values = results.length > 1 ? [...value] : [value];
    return JSON.stringify(wasmIn(results, values.slice(0, results.length)).map((n) => (Number.isFinite(n) && !Object.is(n, -0) ? n : Object.is(n, -0) ? "-0" : String(n))));
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
