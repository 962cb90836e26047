// crypto.subtle: digests, HMAC and AES-GCM, which Go computes.

const nativeSubtle = globalThis.__subtle;

const subtleHashes = ["SHA-1", "SHA-256", "SHA-384", "SHA-512"];
const keyUsages = Object.assign(Object.create(null), { HMAC: ["sign", "verify"], "AES-GCM": ["encrypt", "decrypt", "wrapKey", "unwrapKey"] });
const newKey = Symbol();

class CryptoKey {
  #bytes;
  constructor(mark, bytes, algorithm, extractable, usages) {
    if (mark !== newKey) throw new TypeError("Illegal constructor");
    this.#bytes = bytes;
    Object.assign(this, { type: "secret", extractable, algorithm: Object.freeze(algorithm), usages: Object.freeze(usages) });
    Object.freeze(this);
  }
  // bytes are those of a key that may be used so.
  static bytes(key, name, usage) {
    if (!(key instanceof CryptoKey) || !(#bytes in key)) throw new TypeError("the key is not a CryptoKey");
    if (key.algorithm.name !== name || (usage && !key.usages.includes(usage))) throw new DOMException(`the key is not for ${usage} with ${name}`, "InvalidAccessError");
    return key.#bytes;
  }
}
const keyBytes = CryptoKey.bytes;
delete CryptoKey.bytes;

function algorithmOf(algorithm, known, what) {
  const name = String(typeof algorithm === "object" && algorithm !== null ? algorithm.name : algorithm).toUpperCase();
  if (!known.includes(name)) throw new DOMException(`${what} is not available with ${name}; it is with ${known.join(", ")}`, "NotSupportedError");
  return name;
}

function hashOf(algorithm, what) { return algorithmOf(algorithm, subtleHashes, what); }

function bytesFor(value, what) {
  const bytes = bytesOf(value);
  if (!bytes) throw new TypeError(`${what} is not an ArrayBuffer or a view of one`);
  return base64Encode(bytes);
}

function subtleResult(text) {
  if (text === null || text === undefined) throw new DOMException("The operation failed for an operation-specific reason", "OperationError");
  return base64Decode(text).buffer;
}

function gcm(what, algorithm, key, data) {
  algorithmOf(algorithm, ["AES-GCM"], what === "seal" ? "encrypt" : "decrypt");
  const tag = algorithm.tagLength ?? 128;
  if (![32, 64, 96, 104, 112, 120, 128].includes(tag)) throw new DOMException(`${tag} is not a tagLength`, "OperationError");
  if (tag < 96) throw new DOMException(`a tagLength of ${tag} is not available; it is from 96`, "NotSupportedError");
  const bytes = keyBytes(key, "AES-GCM", what === "seal" ? "encrypt" : "decrypt");
  const additional = algorithm.additionalData === undefined ? "" : bytesFor(algorithm.additionalData, "additionalData");
  return subtleResult(nativeSubtle(what, base64Encode(bytes), bytesFor(algorithm.iv, "iv"), additional, bytesFor(data, "data"), tag / 8));
}

function missing(name) {
  return async () => { throw new DOMException(`crypto.subtle.${name} is not available`, "NotSupportedError"); };
}

const subtle = Object.freeze({
  async digest(algorithm, data) { return subtleResult(nativeSubtle("digest", hashOf(algorithm, "digest"), bytesFor(data, "data"))); },

  async importKey(format, data, algorithm, extractable, usages) {
    if (format !== "raw") throw new DOMException(`importKey of the format ${format} is not available; it is of raw`, "NotSupportedError");
    const name = algorithmOf(algorithm, Object.keys(keyUsages), "importKey");
    const wanted = [...new Set(usages)];
    if (wanted.length === 0 || wanted.some((u) => !keyUsages[name].includes(u))) throw new DOMException(`the usages of a key for ${name} are some of ${keyUsages[name].join(", ")}`, "SyntaxError");

    const given = bytesOf(data);
    if (!given) throw new TypeError("the key is not an ArrayBuffer or a view of one");
    const bytes = new Uint8Array(given);
    const length = bytes.length * 8;
    if (name === "HMAC") {
      if (length === 0) throw new DOMException("the key is empty", "DataError");
      return new CryptoKey(newKey, bytes, { name, hash: Object.freeze({ name: hashOf(algorithm.hash, "HMAC") }), length }, !!extractable, wanted);
    }
    if (![128, 192, 256].includes(length)) throw new DOMException(`a key for AES-GCM has 128, 192 or 256 bits, and this one has ${length}`, "DataError");
    return new CryptoKey(newKey, bytes, { name, length }, !!extractable, wanted);
  },

  async exportKey(format, key) {
    if (format !== "raw") throw new DOMException(`exportKey of the format ${format} is not available; it is of raw`, "NotSupportedError");
    const bytes = keyBytes(key, key?.algorithm?.name);
    if (!key.extractable) throw new DOMException("the key is not extractable", "InvalidAccessError");
    return new Uint8Array(bytes).buffer;
  },

  async sign(algorithm, key, data) {
    algorithmOf(algorithm, ["HMAC"], "sign");
    return subtleResult(nativeSubtle("hmac", key?.algorithm?.hash?.name, base64Encode(keyBytes(key, "HMAC", "sign")), bytesFor(data, "data")));
  },

  async verify(algorithm, key, signature, data) {
    algorithmOf(algorithm, ["HMAC"], "verify");
    return nativeSubtle("verify", key?.algorithm?.hash?.name, base64Encode(keyBytes(key, "HMAC", "verify")), bytesFor(data, "data"), bytesFor(signature, "signature"));
  },

  async encrypt(algorithm, key, data) { return gcm("seal", algorithm, key, data); },
  async decrypt(algorithm, key, data) { return gcm("open", algorithm, key, data); },

  generateKey: missing("generateKey"), deriveKey: missing("deriveKey"), deriveBits: missing("deriveBits"), wrapKey: missing("wrapKey"), unwrapKey: missing("unwrapKey"),
});
