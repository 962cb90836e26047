package module_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/skills/module"
)

// goodWASM uses the features of WebAssembly, including failures.
var goodWASM = wasmModule{
	memory: []uint32{1, 128},
	data:   "hello",
	funcs: []wasmFunc{
		{export: "add", params: []byte{i32, i32}, results: []byte{i32}, code: []byte{0x20, 0, 0x20, 1, 0x6a}},
		{export: "mul", params: []byte{i64, i64}, results: []byte{i64}, code: []byte{0x20, 0, 0x20, 1, 0x7e}},
		{export: "half", params: []byte{f64}, results: []byte{f64}, code: slices.Concat([]byte{0x20, 0, 0x44}, []byte{0, 0, 0, 0, 0, 0, 0xe0, 0x3f}, []byte{0xa2})},
		{export: "swap", params: []byte{i32, i64}, results: []byte{i64, i32}, code: []byte{0x20, 1, 0x20, 0}},
		{export: "load", params: []byte{i32}, results: []byte{i32}, code: []byte{0x20, 0, 0x2d, 0, 0}},
		{export: "grow", params: []byte{i32}, results: []byte{i32}, code: []byte{0x20, 0, 0x40, 0}},
		{export: "trap", code: []byte{0x00}},
		{export: "loop", code: []byte{0x03, 0x40, 0x0c, 0, 0x0b}},
		{export: "deep", results: []byte{i32}, code: []byte{0x10, 8}},
		{export: "div", params: []byte{i32, i32}, results: []byte{i32}, code: []byte{0x20, 0, 0x20, 1, 0x6d}},
		// count counts down from its argument.
		{export: "count", params: []byte{i32}, results: []byte{i32}, code: []byte{0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x20, 0}},
		{export: "", code: []byte{0x01}},
	},
}

var exportsOfGood = []string{"add", "mul", "half", "swap", "load", "grow", "trap", "loop", "deep", "div", "count", "memory"}

// withWASM returns a Start with the WebAssembly module m.
func withWASM(code []byte, exports ...string) module.Start {
	return module.Start{Surface: module.Surface{Methods: []string{"wasm.instantiate"}}, WASM: []module.WASM{{ID: "m", Code: code, Exports: exports, MemoryMB: 4}}}
}

// runWASM runs an execute function with the given body and an instance m of a WebAssembly module.
func runWASM(t *testing.T, body string, s module.Start) module.End {
	t.Helper()
	return run(t, `export async function execute(args: any, host: any) {
		const caught = async (f: any) => { try { return await f() } catch (e) { return e.name + ": " + e.message } };
		`+body+"}", s)
}

// TestWASM checks that declared exports are callable with numbers and that memory is accessed by
// copy (OSL-33).
func TestWASM(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, value string }{
		"adds":                  {`return [m.exports.add(2, 3), m.exports.add(2 ** 31, -1), m.exports.add("4", 1.9), m.exports.add()]`, `[5,2147483647,5,0]`},
		"multiplies i64":        {`return [m.exports.mul(-3n, 5n), m.exports.mul(2n ** 62n, 2n), m.exports.mul(2n ** 64n + 7n, 1n), m.exports.mul(0xffffffffn, 0xffffffffn)].map(String)`, `["-15","-9223372036854775808","7","-8589934591"]`},
		"takes BigInt for i64":  {`return caught(() => m.exports.mul(1, 2n))`, `"TypeError: an i64 is a BigInt, and number was given"`},
		"has f64":               {`return [m.exports.half(3), m.exports.half(NaN), Object.is(m.exports.half(-0), -0), m.exports.half(Infinity) === Infinity, m.exports.half(1e300)]`, `[1.5,null,true,true,5e+299]`},
		"gives many":            {`const [a, b] = m.exports.swap(7, -9n); return [String(a), b]`, `["-9",7]`},
		"reads memory":          {`return [new TextDecoder().decode(m.memory.read(0, 5)), m.memory.size(), m.memory.read(65536, 0).length]`, `["hello",65536,0]`},
		"writes memory":         {`const all = Uint8Array.from({length: 256}, (_, i) => i); m.memory.write(100, all); return [m.exports.load(100 + 200), m.memory.read(100, 256).every((b, i) => b === i), m.exports.load(99)]`, `[200,true,0]`},
		"writes a part":         {`m.memory.write(0, new Uint8Array([1, 2, 3, 4]).subarray(1, 3)); return [...m.memory.read(0, 3)]`, `[2,3,108]`},
		"copies":                {`const b = m.memory.read(0, 1); b[0] = 1; return m.exports.load(0)`, `104`},
		"reads beyond":          {`return caught(() => m.memory.read(65535, 2))`, `"RangeError: 2 bytes at 65535 are not within the memory, which has 65536 bytes"`},
		"reads below":           {`return caught(() => m.memory.read(-1, 2))`, `"RangeError: a part of a memory is an offset and a length, which are whole numbers from 0"`},
		"writes beyond":         {`return caught(() => m.memory.write(2 ** 32 - 1, new Uint8Array(2)))`, `"RangeError: 2 bytes at 4294967295 are not within the memory, which has 65536 bytes"`},
		"writes no bytes":       {`return caught(() => m.memory.write(0, "x"))`, `"TypeError: what is written is bytes: a Uint8Array, an ArrayBuffer, a view of one"`},
		"grows":                 {`return [m.exports.grow(1), m.memory.size(), m.exports.load(131071)]`, `[1,131072,0]`},
		"grows too much":        {`return [m.exports.grow(63), m.memory.size(), m.exports.grow(62), m.exports.grow(1)]`, `[1,4194304,-1,-1]`},
		"traps":                 {`return [await caught(m.exports.trap), await caught(() => m.exports.div(1, 0)), await caught(() => m.exports.load(-1)), m.exports.add(1, 1)]`, `["RuntimeError: unreachable","RuntimeError: integer divide by zero","RuntimeError: out of bounds memory access",2]`},
		"recurses":              {`return caught(m.exports.deep)`, `"RuntimeError: stack overflow"`},
		"is frozen":             {`return [Object.isFrozen(m.exports), Object.isFrozen(m.memory), Object.keys(m.exports).length]`, `[true,true,11]`},
		"is there twice":        {`const n = await host.wasm.instantiate("m"); n.memory.write(0, new Uint8Array([1])); return [m.exports.load(0), n.exports.load(0)]`, `[104,1]`},
		"is not declared":       {`return caught(() => host.wasm.instantiate("n"))`, `"LinkError: the manifest declares no WebAssembly module \"n\""`},
		"has bounds of memory":  {`const all = [m]; return caught(async () => { for (;;) { all.push(await host.wasm.instantiate("m")); all.at(-1).exports.grow(63); all.at(-1).memory.write(4194303, new Uint8Array(1)) } })`, `"RangeError: 1 bytes at 4194303 are not within the memory, which has 65536 bytes"`},
		"has a bound of number": {`return caught(async () => { for (let i = 0; ; i++) await host.wasm.instantiate("m") })`, `"RangeError: there are 100 instances of WebAssembly modules already, which is the most"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := runWASM(t, `const m = await host.wasm.instantiate("m");`+c.body, withWASM(goodWASM.build(), exportsOfGood...))
			want(t, end, c.value)
		})
	}
}

// TestWASMNotDeclared checks that undeclared exports and modules are not available.
func TestWASMNotDeclared(t *testing.T) {
	t.Parallel()
	end := runWASM(t, `const m = await host.wasm.instantiate("m"); return [Object.keys(m.exports), typeof m.exports.trap]`, withWASM(goodWASM.build(), "add"))
	want(t, end, `[["add"],"undefined"]`)

	s := withWASM(goodWASM.build(), "add")
	s.Surface.Methods = nil
	want(t, runWASM(t, `return [typeof host.wasm, typeof (globalThis as any).WebAssembly, typeof (globalThis as any).__wasm]`, s), `["undefined","undefined","undefined"]`)
}

// TestWASMImports checks that a module can provide functions to WebAssembly, and that their
// exceptions reach the caller.
func TestWASMImports(t *testing.T) {
	t.Parallel()
	code := wasmModule{
		imports: []wasmFunc{
			{export: "env.ask", params: []byte{i32, i64}, results: []byte{i64}},
			{export: "env.tell", params: []byte{f64}, results: []byte{f64}},
			{export: "js.go", params: []byte{}, results: []byte{}},
		},
		funcs: []wasmFunc{
			{export: "ask", params: []byte{i32, i64}, results: []byte{i64}, code: []byte{0x20, 0, 0x20, 1, 0x10, 0}},
			{export: "tell", params: []byte{f64}, results: []byte{f64}, code: []byte{0x20, 0, 0x10, 1}},
			{export: "go", code: []byte{0x10, 2}},
		},
	}.build()
	for name, c := range map[string]struct{ body, value string }{
		"calls":     {`const m = await make({}); return [String(m.exports.ask(-7, -(2n ** 40n))), m.exports.tell(1.5), Object.is(m.exports.tell(0), -0), m.exports.tell(NaN), m.exports.tell(-Infinity) === Infinity]`, `["-1099511627783",-1.5,true,null,true]`},
		"throws":    {`const own = new RangeError("mine"); const m = await make({go() { throw own }}); let e; try { m.exports.go() } catch (thrown) { e = thrown } return [e === own, m.exports.tell(1)]`, `[true,-1]`},
		"no number": {`const m = await make({ask: () => 1}); return caught(() => m.exports.ask(1, 1n))`, `"TypeError: an i64 is a BigInt, and number was given"`},
		"is deep":   {`let m; m = await make({go: () => m.exports.go()}); return caught(() => m.exports.go())`, `"RangeError: calls of WebAssembly and of the functions that it imports are nested 50 deep, which is the most"`},
		"missing":   {`return caught(() => host.wasm.instantiate("m", {env: {ask() {}, tell() {}}}))`, `"LinkError: it imports the function js.go; give it as {\"js\": {\"go\": …}} among the imports"`},
		"none":      {`return caught(() => host.wasm.instantiate("m"))`, `"LinkError: it imports the function env.ask; give it as {\"env\": {\"ask\": …}} among the imports"`},
		"makes one": {`let m, said; m = await make({go: () => { host.wasm.instantiate("m", given({})).catch((e) => said = e.message) }}); m.exports.go(); await null; await null; return [said, (await make({})).exports.tell(2)]`, `["an imported function cannot make an instance; make it before",-2]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want(t, runWASM(t, `const given = (more) => ({env: {ask: more.ask ?? ((a, b) => BigInt(a) + b), tell: (x) => -x}, js: {go: more.go ?? (() => {})}});
				const make = (more) => host.wasm.instantiate("m", given(more));`+c.body, withWASM(code, "ask", "tell", "go")), c.value)
		})
	}
}

// TestWASMHostile checks that WebAssembly that exceeds a limit fails or ends its module (OSL-10,
// OSL-33).
func TestWASMHostile(t *testing.T) {
	t.Parallel()
	nop := wasmFunc{export: "f", code: []byte{0x01}}
	call := `const m = await host.wasm.instantiate("m"); m.exports.f(); return "went on"`
	caught := `return caught(async () => { const m = await host.wasm.instantiate("m"); m.exports.f(); return "went on" })`
	for name, c := range map[string]struct {
		code  []byte
		body  string
		ends  []module.EndStatus
		says  string
		bound time.Duration
	}{
		"loops":                     {wasmModule{funcs: []wasmFunc{{export: "f", code: []byte{0x03, 0x40, 0x0c, 0, 0x0b}}}}.build(), call, []module.EndStatus{module.TimedOut}, "", 250 * time.Millisecond},
		"loops, caught":             {wasmModule{funcs: []wasmFunc{{export: "f", code: []byte{0x03, 0x40, 0x0c, 0, 0x0b}}}}.build(), `const m = await host.wasm.instantiate("m"); for (;;) try { m.exports.f() } catch {}`, []module.EndStatus{module.TimedOut}, "", 250 * time.Millisecond},
		"loops at its start":        {wasmModule{start: 1, funcs: []wasmFunc{nop, {code: []byte{0x03, 0x40, 0x0c, 0, 0x0b}}}}.build(), call, []module.EndStatus{module.TimedOut}, "", 250 * time.Millisecond},
		"traps at its start":        {wasmModule{start: 1, funcs: []wasmFunc{nop, {code: []byte{0x00}}}}.build(), caught, []module.EndStatus{module.Returned}, "RuntimeError: ", 0},
		"traps at its start, often": {wasmModule{start: 1, memory: []uint32{16}, funcs: []wasmFunc{nop, {code: []byte{0x00}}}}.build(), `let e; for (let i = 0; i < 200; i++) e = await caught(() => host.wasm.instantiate("m")); return e`, []module.EndStatus{module.Returned}, "RuntimeError: ", 0},
		"wants much memory":         {wasmModule{memory: []uint32{65536}, funcs: []wasmFunc{nop}}.build(), caught, []module.EndStatus{module.Returned}, "RangeError: the WebAssembly module needs 4096 MiB of memory to begin with, and may have 4", 0},
		"may want much":             {wasmModule{memory: []uint32{1, 65536}, funcs: []wasmFunc{nop}}.build(), caught, []module.EndStatus{module.Returned}, "went on", 0},
		"grows for ever":            {wasmModule{memory: []uint32{1}, funcs: []wasmFunc{{export: "f", code: []byte{0x03, 0x40, 0x41, 1, 0x40, 0, 0x41, 0, 0x4e, 0x0d, 0, 0x0b}}}}.build(), caught, []module.EndStatus{module.Returned}, "went on", 0},
		"has a huge table":          {wasmModule{table: 1 << 27, funcs: []wasmFunc{nop}}.build(), caught, []module.EndStatus{module.Memory, module.Returned}, "", 0},
		"imports a memory":          {slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), []byte{2, 8, 1, 1, 'e', 1, 'm', 2, 0, 1}), caught, []module.EndStatus{module.Returned}, "LinkError: the WebAssembly module m imports a memory", 0},
		"imports a global":          {slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), []byte{2, 8, 1, 1, 'e', 1, 'g', 3, i32, 0}), caught, []module.EndStatus{module.Returned}, "Error: ", 0},
		"is no module":              {[]byte("\x00asm\x02\x00\x00\x00"), caught, []module.EndStatus{module.Returned}, "CompileError: ", 0},
		"is cut off":                {goodWASM.build()[:60], caught, []module.EndStatus{module.Returned}, "CompileError: ", 0},
		"has wrong code":            {wasmModule{funcs: []wasmFunc{{export: "f", results: []byte{i32}, code: []byte{0x01}}}}.build(), caught, []module.EndStatus{module.Returned}, "CompileError: ", 0},
		"lacks an export":           {wasmModule{funcs: []wasmFunc{{export: "g", code: []byte{0x01}}}}.build(), caught, []module.EndStatus{module.Returned}, `LinkError: the manifest names the export \"f\" of the WebAssembly module m`, 0},
		"exports a reference":       {wasmModule{funcs: []wasmFunc{{export: "f", params: []byte{0x6f}, code: []byte{0x01}}}}.build(), caught, []module.EndStatus{module.Returned}, "LinkError: the function", 0},
		"has many locals":           {wasmModule{funcs: []wasmFunc{{export: "f", locals: 49_000, code: []byte{0x01}}}}.build(), caught, []module.EndStatus{module.Returned, module.TimedOut}, "", 10 * time.Second},
		"is very long":              {wasmModule{funcs: []wasmFunc{{export: "f", code: slices.Repeat([]byte{0x41, 0, 0x1a}, 1<<20)}}}.build(), caught, []module.EndStatus{module.Returned, module.TimedOut, module.Memory}, "", 10 * time.Second},
		"is nested deeply":          {wasmModule{funcs: []wasmFunc{{export: "f", code: slices.Concat(slices.Repeat([]byte{0x02, 0x40}, 1<<18), slices.Repeat([]byte{0x0b}, 1<<18))}}}.build(), caught, []module.EndStatus{module.Returned, module.TimedOut, module.Memory, module.Crashed}, "", time.Second},
		"wants WASI":                {wasmModule{imports: []wasmFunc{{export: "wasi_snapshot_preview1.fd_write", params: []byte{i32, i32, i32, i32}, results: []byte{i32}}}, funcs: []wasmFunc{nop}}.build(), caught, []module.EndStatus{module.Returned}, "LinkError: it imports the function wasi_snapshot_preview1.fd_write", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withWASM(c.code, "f")
			s.Timeout, s.MemoryMB = max(c.bound, 0), 16
			begin := time.Now()
			end := runWASM(t, c.body, s)
			if !slices.Contains(c.ends, end.Status) || !strings.Contains(string(end.Value)+end.Error, c.says) {
				t.Errorf("it ended with %s %s, not with %v %s", end.String(), end.Value, c.ends, c.says)
			}
			t.Logf("%s %.200s after %s", end.String(), end.Value, time.Since(begin))
		})
	}
}

// TestWASMStart checks that invalid modules are rejected before a process starts.
func TestWASMStart(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p, err := m.Compile(t.Context(), skill(t, map[string]string{"module.ts": "export const execute = 1;"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]module.WASM{{{ID: "m"}}, {{ID: "", Code: []byte{1}}}, {{ID: "m", Code: make([]byte, 65<<20)}}} {
		if i, err := m.Start(t.Context(), p, module.Start{Export: "execute", WASM: list}); err == nil {
			_ = i.Close()
			t.Errorf("%d bytes of %q were taken", len(list[0].Code), list[0].ID)
		}
	}
}
