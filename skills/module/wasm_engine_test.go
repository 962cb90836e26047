package module

import (
	"fmt"
	"testing"
	"time"
)

// wasmCounts is a module with two functions: f counts down from its parameter, and loop does not
// end.
const wasmCounts = "\x00asm\x01\x00\x00\x00" + "\x01\x09\x02\x60\x01\x7f\x01\x7f\x60\x00\x00" + "\x03\x03\x02\x00\x01" + "\x07\x0c\x02\x01f\x00\x00\x04loop\x00\x01" +
	"\x0a\x1a\x02\x10\x00\x03\x40\x20\x00\x41\x01\x6b\x22\x00\x0d\x00\x0b\x20\x00\x0b" + "\x07\x00\x03\x40\x0c\x00\x0b\x0b"

// runInProcess runs a module with the WebAssembly module m in this process.
func runInProcess(t testing.TB, interpreted bool, timeout time.Duration, body string, code []byte, exports ...string) *End {
	t.Helper()
	vm, err := newMachineVM(&startRequest{"export async function execute(args, host) {" + body + "}", Start{Export: "execute", MemoryMB: 32, Timeout: timeout,
		Surface: Surface{Methods: []string{"wasm.instantiate"}}, WASM: []WASM{{ID: "m", Code: code, Exports: exports, MemoryMB: 1}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	vm.wasm.interpreted = interpreted
	defer func() {
		vm.step.Free()
		if err := vm.vm.Close(); err != nil {
			t.Error(err)
		}
	}()

	e := vm.begin()
	if e.End == nil {
		t.Fatalf("it goes on: %+v", e)
	}
	if interpreted != vm.wasm.interpreted {
		t.Errorf("interpreted: %v", vm.wasm.interpreted)
	}
	return e.End
}

// TestWASMInterpreted checks that the interpreter gives the same results and respects the timeout.
func TestWASMInterpreted(t *testing.T) {
	t.Parallel()
	const instance = `const m = await host.wasm.instantiate("m");`
	if end := runInProcess(t, true, time.Minute, instance+`return m.exports.f(1000)`, []byte(wasmCounts), "f"); end.Status != Returned || string(end.Value) != "0" {
		t.Errorf("it ended with %s %s", end, end.Value)
	}
	for _, body := range []string{`m.exports.loop()`, `for (;;) try { m.exports.loop() } catch {}`} {
		begin := time.Now()
		if end := runInProcess(t, true, 300*time.Millisecond, instance+body, []byte(wasmCounts), "loop"); end.Status != TimedOut {
			t.Errorf("it ended with %s", end)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	}
}

// FuzzWASM checks that any WebAssembly code neither crashes the VM nor runs forever.
func FuzzWASM(f *testing.F) {
	for _, code := range []string{"", wasmOfNothing, wasmCounts, wasmCounts[:40], "\x00asm\x01\x00\x00\x00\x05\x03\x01\x00\x01", "\x00asm\x01\x00\x00\x00\x02\x08\x01\x01e\x01f\x03\x7f\x00"} {
		f.Add([]byte(code))
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		if len(code) > 4<<10 {
			t.Skip("what is large takes long")
		}
		end := runInProcess(t, true, 5*time.Second, `try { await host.wasm.instantiate("m", {e: {f() {}}}); return "made" } catch (e) { return e.name }`, code)
		if end.Status != Returned && end.Status != TimedOut {
			t.Errorf("%q: it ended with %s", code, end)
		}
	})
}

// BenchmarkWASM runs a long loop and a call in both engines.
func BenchmarkWASM(b *testing.B) {
	for _, interpreted := range []bool{false, true} {
		for name, body := range map[string]string{"loop": "m.exports.f(1e6 * %d)", "call": "for (let i = 0; i < %d; i++) m.exports.f(1)"} {
			b.Run(fmt.Sprintf("%s, interpreted %v", name, interpreted), func(b *testing.B) {
				end := runInProcess(b, interpreted, time.Hour, `const m = await host.wasm.instantiate("m");`+fmt.Sprintf(body, b.N), []byte(wasmCounts), "f")
				if end.Status != Returned {
					b.Fatal(end)
				}
			})
		}
	}
}
