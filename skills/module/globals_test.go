package module_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"rouse/skills/module"
)

// TestGlobals checks the behavior of each global of a VM. The clock shows 2026-11-23T09:30:00Z.
func TestGlobals(t *testing.T) {
	for _, test := range []struct{ name, body, want string }{
		{"Date", `return [new Date().toISOString(), Date.now(), typeof Date(), new Date(0).getTime(), Date.UTC(2020, 0), Date.parse("2020-01-01T00:00:00Z")]`,
			`["2026-11-23T09:30:00.000Z",1795426200000,"string",0,1577836800000,1577836800000]`},
		{"Date is one class", `const d = new Date(); class Later extends Date {}; return [d instanceof Date, d.constructor === Date, Date.name, Date.length, new Later(5) instanceof Later, new Later(5).getTime()]`,
			`[true,true,"Date",7,true,5]`},
		{"Date stands still", `const a = Date.now(); for (let i = 0; i < 1e5; i++); return Date.now() - a`, `0`},
		{"toLocaleDateString", `const d = new Date("2026-11-23T12:00:00Z"); return [d.toLocaleDateString("en-US", { timeZone: "UTC" }),
			d.toLocaleDateString("en-US", { year: "numeric", month: "long", day: "numeric", weekday: "long", timeZone: "UTC" }),
			typeof d.toLocaleDateString(), typeof d.toLocaleDateString("de-DE", { dateStyle: "medium" }), typeof d.toLocaleDateString(undefined, { month: "short" }),
			d.toLocaleTimeString("en-US", { timeZone: "UTC", hour: "2-digit", minute: "2-digit" }), typeof d.toLocaleString("fr-FR")]`,
			`["11/23/2026","Monday, November 23, 2026","string","string","string","12:00 PM","string"]`},
		{"toLocaleString of numbers", `return [(1234567.891).toLocaleString(), (1234.5).toLocaleString("en-US", { style: "currency", currency: "USD" })]`, `["1,234,567.891","$1,234.50"]`},
		{"Intl", `return [new Intl.DateTimeFormat("en-US", { timeZone: "UTC" }).format(new Date(0)), new Intl.NumberFormat().format(1e6)]`, `["1/1/1970","1,000,000"]`},
		{"Math.random", `const all = new Set(); let good = true; for (let i = 0; i < 1000; i++) { const r = Math.random(); good &&= r >= 0 && r < 1; all.add(r); } return [good, all.size]`, `[true,1000]`},
		{"crypto.randomUUID", `const id = crypto.randomUUID(); return [/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id), id !== crypto.randomUUID()]`, `[true,true]`},
		{"crypto.getRandomValues", `const a = crypto.getRandomValues(new Uint32Array(8)); let refused = ""; try { crypto.getRandomValues(new Float64Array(1)) } catch (e) { refused = e.name }
			return [a.length, new Set(a).size, refused]`, `[8,8,"TypeError"]`},
		{"crypto.subtle.digest", `const hex = (b) => [...new Uint8Array(b)].map((x) => x.toString(16).padStart(2, "0")).join(""); const abc = new TextEncoder().encode("abc");
			return [hex(await crypto.subtle.digest("SHA-256", abc)), hex(await crypto.subtle.digest({ name: "sha-1" }, abc.buffer)), (await crypto.subtle.digest("SHA-384", abc)).byteLength, (await crypto.subtle.digest("SHA-512", new Uint8Array())) instanceof ArrayBuffer]`,
			`["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","a9993e364706816aba3e25717850c26c9cd0d89d",48,true]`},
		{"crypto.subtle: HMAC", `const text = (s) => new TextEncoder().encode(s); const key = await crypto.subtle.importKey("raw", text("key"), { name: "HMAC", hash: "SHA-256" }, true, ["sign", "verify"]);
			const mac = await crypto.subtle.sign("HMAC", key, text("The quick brown fox jumps over the lazy dog"));
			return [btoa(String.fromCharCode(...new Uint8Array(mac))), await crypto.subtle.verify({ name: "HMAC" }, key, mac, text("The quick brown fox jumps over the lazy dog")), await crypto.subtle.verify("HMAC", key, mac, text("another")),
				key.type, key.algorithm, key.usages, new TextDecoder().decode(await crypto.subtle.exportKey("raw", key)), JSON.stringify(Object.keys(key))]`,
			`["97yD9DBThCSxMpjmqm+xQ+9NWaFJRhdZl0edvC0aPNg=",true,false,"secret",{"name":"HMAC","hash":{"name":"SHA-256"},"length":24},["sign","verify"],"key","[\"type\",\"extractable\",\"algorithm\",\"usages\"]"]`},
		{"crypto.subtle: AES-GCM", `const zero = (n) => new Uint8Array(n); const key = await crypto.subtle.importKey("raw", zero(16), "AES-GCM", false, ["encrypt", "decrypt"]);
			const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: zero(12) }, key, zero(16)); const hex = [...new Uint8Array(sealed)].map((x) => x.toString(16).padStart(2, "0")).join("");
			const with_ = { name: "AES-GCM", iv: zero(12), additionalData: zero(3), tagLength: 96 }; const short = await crypto.subtle.encrypt(with_, key, zero(5));
			return [hex, new Uint8Array(await crypto.subtle.decrypt({ name: "AES-GCM", iv: zero(12) }, key, sealed)).length, short.byteLength, (await crypto.subtle.decrypt(with_, key, short)).byteLength, (await crypto.subtle.encrypt({ name: "AES-GCM", iv: zero(16) }, key, zero(1))).byteLength]`,
			`["0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf",16,17,5,17]`},
		{"crypto.subtle refuses", `const zero = (n) => new Uint8Array(n), out = []; const caught = async (p) => { try { await p(); out.push("none") } catch (e) { out.push(e.name) } };
			const key = await crypto.subtle.importKey("raw", zero(32), "AES-GCM", false, ["encrypt", "decrypt"]), mac = await crypto.subtle.importKey("raw", zero(4), { name: "HMAC", hash: { name: "SHA-1" } }, false, ["verify"]);
			const s = crypto.subtle, iv = { name: "AES-GCM", iv: zero(12) };
			for (const p of [() => s.digest("MD5", zero(1)), () => s.digest("SHA-1", "text"), () => s.importKey("jwk", {}, "AES-GCM", true, ["encrypt"]), () => s.importKey("raw", zero(5), "AES-GCM", true, ["encrypt"]), () => s.importKey("raw", zero(16), "AES-GCM", true, ["sign"]),
				() => s.importKey("raw", zero(0), { name: "HMAC", hash: "SHA-1" }, true, ["sign"]), () => s.exportKey("raw", key), () => s.sign("HMAC", mac, zero(1)), () => s.encrypt(iv, mac, zero(1)), () => s.decrypt(iv, key, zero(20)), () => s.decrypt(iv, key, zero(2)),
				() => s.encrypt({ name: "AES-GCM", iv: zero(0) }, key, zero(1)), () => s.encrypt({ ...iv, tagLength: 64 }, key, zero(1)), () => s.encrypt({ name: "RSA-OAEP" }, key, zero(1)), () => s.generateKey("AES-GCM", true, []), () => s.sign("HMAC", { algorithm: { name: "HMAC" }, usages: ["sign"] }, zero(1)),
				() => new key.constructor()]) await caught(p);
			return out`,
			`["NotSupportedError","TypeError","NotSupportedError","DataError","SyntaxError","DataError","InvalidAccessError","InvalidAccessError","InvalidAccessError","OperationError","OperationError","OperationError","NotSupportedError","NotSupportedError","NotSupportedError","TypeError","TypeError"]`},
		{"JSON keeps __proto__ as data", `const a = JSON.parse('{"__proto__":{"x":1}}'); return [a.x, Object.keys(a)]`, `[null,["__proto__"]]`},
		{"URL", `const u = new URL("../b?x=1#h", "https://user:pw@example.com:8443/a/c/"); return [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash, String(u), JSON.stringify(u)]`,
			`["https://user:pw@example.com:8443/a/b?x=1#h","https://example.com:8443","https:","user","pw","example.com:8443","example.com","8443","/a/b","?x=1","#h","https://user:pw@example.com:8443/a/b?x=1#h","\"https://user:pw@example.com:8443/a/b?x=1#h\""]`},
		{"URL parts are set", `const u = new URL("http://example.com/"); u.protocol = "https"; u.pathname = "/a b"; u.searchParams.append("q", "ä &"); u.hash = "top"; u.host = "example.org:81"; const p = u.searchParams; u.search = "?z=1"; return [u.href, p.get("z"), p.get("q")]`,
			`["https://example.org:81/a%20b?z=1#top","1",null]`},
		{"URL parameters are written", `const u = new URL("http://example.com/"); u.searchParams.set("q", "ä &"); return u.href`, `"http://example.com/?q=%C3%A4+%26"`},
		{"URL that is none", `try { new URL("no address") } catch (e) { return [e.name, URL.canParse("x"), URL.parse("x"), URL.canParse("x", "http://a/")] }`, `["TypeError",false,null,true]`},
		{"URLSearchParams", `const p = new URLSearchParams("?a=1&b=x+y&a=%C3%A4&c"); p.append("d", "e f"); p.delete("c"); p.set("b", "2"); return [p.get("a"), p.getAll("a"), p.has("c"), p.get("zz"), p.toString(), [...p].length, p.size, [...p.keys()]]`,
			`["1",["1","ä"],false,null,"a=1\u0026b=2\u0026a=%C3%A4\u0026d=e+f",4,4,["a","b","a","d"]]`},
		{"URLSearchParams of others", `return [new URLSearchParams({ a: 1, b: "ü" }).toString(), new URLSearchParams([["a", "1"], ["a", "2"]]).toString(), new URLSearchParams(new Map([["k", "v"]])).toString()]`, `["a=1\u0026b=%C3%BC","a=1\u0026a=2","k=v"]`},
		{"TextEncoder", `return [[...new TextEncoder().encode("aä€😀")], [...new TextEncoder().encode("\ud800")], new TextEncoder().encodeInto("a€", new Uint8Array(3))]`, `[[97,195,164,226,130,172,240,159,152,128],[239,191,189],{"read":1,"written":1}]`},
		{"TextDecoder", `const d = new TextDecoder(); let fatal = ""; try { new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xff])) } catch (e) { fatal = e.name }
			return [d.decode(new Uint8Array([0xef, 0xbb, 0xbf, 97, 195, 164, 240, 159, 152, 128])), d.decode(new Uint8Array([0xe2, 0x82, 97, 0xff])), d.decode(new Uint8Array([65, 66]).buffer), fatal, d.encoding]`,
			`["aä😀","\ufffda\ufffd","AB","TypeError","utf-8"]`},
		{"atob and btoa", `let bad = ""; try { atob("a") } catch (e) { bad = e.name }; return [btoa("Hello\xff"), atob("SGVsbG8="), atob(" SGV sbG8 "), btoa(""), bad]`, `["SGVsbG//","Hello","Hello","","InvalidCharacterError"]`},
		{"setTimeout", `const order = []; const begin = Date.now(); await new Promise((done) => { setTimeout(() => { order.push("b", Date.now() - begin); done() }, 20); setTimeout((x) => order.push(x), 10, "a"); clearTimeout(setTimeout(() => order.push("never"), 5)); queueMicrotask(() => order.push("at once")) }); return order`,
			`["at once","a","b",20]`},
		{"setInterval", `let n = 0; await new Promise((done) => { const id = setInterval(() => { if (++n === 3) { clearInterval(id); done() } }, 5) }); return [n, Date.now() - ` + "1795426200000" + `]`, `[3,15]`},
		{"structuredClone", `const from = { d: new Date(5), m: new Map([["a", new Set([1])]]), b: new Uint8Array([1, 2]), r: /x/g, u: undefined }; from.self = from; const to = structuredClone(from); let bad = ""; try { structuredClone(() => 1) } catch (e) { bad = e.name }
			return [to !== from, to.self === to, to.d.getTime(), to.m.get("a").has(1), [...to.b], to.b !== from.b, String(to.r), "u" in to, bad]`, `[true,true,5,true,[1,2],true,"/x/g",true,"DataCloneError"]`},
		{"AbortController", `const c = new AbortController(); const heard = []; c.signal.addEventListener("abort", (e) => heard.push(e.type)); c.signal.onabort = () => heard.push("on"); c.abort(); c.abort(); let thrown; try { c.signal.throwIfAborted() } catch (e) { thrown = e.name }
			const late = AbortSignal.timeout(5); await new Promise((done) => late.addEventListener("abort", done)); return [c.signal.aborted, heard, thrown, AbortSignal.abort("x").reason, late.reason.name]`,
			`[true,["on","abort"],"AbortError","x","TimeoutError"]`},
		{"for await", `async function* all() { yield 1; yield 2 } const out = []; for await (const n of all()) out.push(n); return out`, `[1,2]`},
		{"the language", `const m = { a: { b: null } }; class P { #x = 1; static s = 2; get x() { return this.#x } } return [m?.a?.b ?? "none", [..."äb"].length, Object.groupBy([1, 2, 3], (n) => n % 2 ? "odd" : "even"), [3, 1, 2].toSorted(), [1, 2].at(-1), new P().x + P.s, "a-b".replaceAll("-", "+"), 2n ** 64n > 1n, [1, [2]].flat()]`,
			`["none",2,{"even":[2],"odd":[1,3]},[1,2,3],2,3,"a+b",true,[1,2]]`},
		{"globalThis", `globalThis.left = 1; return [typeof globalThis, typeof window, typeof self, typeof global, typeof process]`, `["object","undefined","undefined","undefined","undefined"]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			end := run(t, "export async function execute() { "+test.body+" }", module.Start{Seed: [32]byte{1}})
			var got, wanted any
			if json.Unmarshal([]byte(test.want), &wanted) != nil {
				t.Fatalf("%s is no JSON", test.want)
			}
			if err := json.Unmarshal(end.Value, &got); err != nil || string(raw(t, got)) != string(raw(t, wanted)) {
				t.Errorf("it %s\n got %s\nwant %s\n%s", end.String(), end.Value, test.want, end.Stack)
			}
		})
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	e := next(t, start(t, `export async function execute() {
		console.log("a", 1, { b: [2] }, null, undefined, () => 1, new TypeError("bad"));
		console.warn("careful"); console.error("wrong"); console.debug("d"); console.assert(1 === 2, "no"); console.count(); console.count();
		const a: any = {}; a.a = a; console.info(a, 5n, Symbol("s"));
		console.time("t"); await new Promise((done) => setTimeout(done, 7)); console.timeEnd("t");
		console.log("x".repeat(1e5));
	}`, module.Start{}))
	var got []string
	for _, l := range e.Logs {
		got = append(got, l.Level+" "+l.Text[:min(len(l.Text), 80)])
		if l.Source != "console" || len(l.Text) > 9000 {
			t.Errorf("%.100v", l)
		}
	}
	want(t, ended(t, e), "")
	if text := strings.Join(got, "\n"); !strings.HasPrefix(text, `info a 1 {"b":[2]} null undefined [Function: anonymous] TypeError: bad
warn careful
error wrong
debug d
error Assertion failed: no
info default: 1
info default: 2
info [object Object] 5 Symbol(s)
info t: 7 ms
info xxxx`) {
		t.Error(text)
	}
}

// TestAllowedGlobals checks that the default globals or the listed ones exist. Names that are not
// in Globals never do (OSL-10).
func TestAllowedGlobals(t *testing.T) {
	t.Parallel()
	const probe = `export async function execute(names: string[]) { return names.filter((n) => (globalThis as any)[n] !== undefined).join(" "); }`
	names := append(module.Globals(), "process", "Date", "eval")
	usual := slices.DeleteFunc(module.Globals(), func(n string) bool { return n == "fetch" || n == "performance" })
	surface := module.Surface{Methods: []string{"network.fetch"}}
	for _, test := range []struct {
		allowed []string
		want    string
		surface module.Surface
	}{
		{nil, strings.Join(usual, " ") + " Date", surface},
		{[]string{"URL", "process", "eval"}, "URL console Date", surface},
		{[]string{"fetch", "performance"}, "console fetch performance Date", surface},
		{[]string{"fetch"}, "console Date", module.Surface{}},
	} {
		end := run(t, probe, module.Start{Args: raw(t, names), AllowedGlobals: test.allowed, Surface: test.surface})
		want(t, end, `"`+test.want+`"`)
	}
}

// TestNothingElseExists checks that a VM has only the globals of the language and the list above.
func TestNothingElseExists(t *testing.T) {
	t.Parallel()
	end := run(t, `export async function execute() { return Object.getOwnPropertyNames(globalThis).sort().join(" "); }`, module.Start{})
	want(t, end, `"AbortController AbortSignal AggregateError Array ArrayBuffer Atomics BigInt BigInt64Array BigUint64Array Boolean DataView Date Error EvalError `+
		`FinalizationRegistry Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array InternalError Intl Iterator JSON Map Math NaN Number Object `+
		`Promise Proxy RangeError ReferenceError Reflect RegExp Set SharedArrayBuffer String Symbol SyntaxError TextDecoder TextEncoder TypeError URIError URL URLSearchParams Uint16Array `+
		`Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet atob btoa clearInterval clearTimeout console crypto decodeURI decodeURIComponent `+
		`encodeURI encodeURIComponent escape globalThis isFinite isNaN parseFloat parseInt queueMicrotask setInterval setTimeout structuredClone undefined unescape"`)
}
