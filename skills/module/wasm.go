package module

import (
	"errors"
	"fmt"
	"slices"
)

// WASM is a WebAssembly module that a module may instantiate, as host.wasm.instantiate(ID). Its code was audited by whoever gives
// it: it runs in the machine's own process, and reaches nothing but the functions that the module gives it (OSL-33).
type WASM struct {
	ID       string
	Code     []byte
	Exports  []string // the functions that the module may call
	MemoryMB int      // of one instance, in MiB; that of all instances together is bounded by the machine's own
}

// What the WebAssembly of a machine may come to.
const (
	maxWASM      = 64 << 20 // bytes of the code of all modules
	maxInstances = 100
	// wasmProcess is what the process of a machine with WebAssembly needs beside its memory, in bytes: code while and after it is
	// compiled, and the stack of its calls.
	wasmProcess = 384 << 20
)

func checkWASM(list []WASM) error {
	size := 0
	for _, w := range list {
		if size += len(w.Code); size > maxWASM {
			return fmt.Errorf("the WebAssembly modules of a module come to over %d MiB", maxWASM>>20)
		}
		if w.ID == "" || w.MemoryMB < 0 {
			return fmt.Errorf("a WebAssembly module has the name %q, and %d MiB of memory", w.ID, w.MemoryMB)
		}
	}
	if slices.ContainsFunc(list, func(w WASM) bool { return len(w.Code) == 0 }) {
		return errors.New("a WebAssembly module is empty")
	}
	return nil
}

// wasmHeap is how much memory of WebAssembly there can be in a machine, in bytes. One that grows is there twice for a moment.
func wasmHeap(s *startRequest) int64 {
	if len(s.WASM) == 0 {
		return 0
	}
	return int64(s.MemoryMB) << 21
}

// wasmMemory is what the process of a machine needs for its WebAssembly, in bytes.
func wasmMemory(s *startRequest) int64 {
	if len(s.WASM) == 0 {
		return 0
	}
	return wasmHeap(s) + wasmProcess
}
