package module

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tetratelabs/wazero/experimental"
	"modernc.org/quickjs"
)

// wasmAllocator gives an instance its memory, within its own bound and that of all instances.
type wasmAllocator struct {
	host  *wasmHost
	left  uint64 // bytes that this instance may still take
	bytes []byte
}

// Allocate implements [experimental.MemoryAllocator].
func (a *wasmAllocator) Allocate(least, _ uint64) experimental.LinearMemory {
	if least > min(a.left, a.host.free) {
		raise(rangeError("the WebAssembly module needs %d MiB of memory to begin with, and may have %d (memoryLimitMB, sandbox.maxMemoryMB)", (least+1<<20-1)>>20, min(a.left, a.host.free)>>20))
	}
	return a
}

// Reallocate implements [experimental.LinearMemory]: nil has memory.grow answer -1.
func (a *wasmAllocator) Reallocate(size uint64) []byte {
	more := size - uint64(len(a.bytes))
	if more > min(a.left, a.host.free) {
		return nil
	}
	a.left, a.host.free = a.left-more, a.host.free-more

	if size > uint64(cap(a.bytes)) {
		// With room for more, as modules grow by a page at a time.
		grown := make([]byte, size, max(size, min(size+a.left, uint64(cap(a.bytes))*3/2)))
		copy(grown, a.bytes)
		a.bytes = grown
	}
	a.bytes = a.bytes[:size]
	return a.bytes
}

// Free implements [experimental.LinearMemory].
func (a *wasmAllocator) Free() {
	a.host.free += uint64(len(a.bytes))
	a.bytes = nil
}

// access answers wasm.js what it wants of the memory.
func (i *wasmInstance) access(what string, args []any) (any, error) {
	switch {
	case i.memory == nil:
		return nil, linkError("the instance shows no memory")
	case what == "size":
		return float64(i.memory.Size()), nil
	case what == "read":
		return i.read(args)
	}
	return quickjs.Undefined{}, i.write(args)
}

// read gives bytes of the memory, each as a character.
func (i *wasmInstance) read(args []any) (any, error) {
	bytes, err := i.view(args)
	if err != nil {
		return nil, err
	}
	text := make([]rune, len(bytes))
	for k, b := range bytes {
		text[k] = rune(b)
	}
	return string(text), nil
}

// write writes bytes, each a character, of which there are as many as are said.
func (i *wasmInstance) write(args []any) error {
	bytes, err := i.view(args)
	if err != nil {
		return err
	}
	text, _ := argument[string](args, 2)
	at := 0
	for _, r := range text {
		if at < len(bytes) {
			bytes[at] = byte(r)
			at++
		}
	}
	return nil
}

// view is a part of the memory: an offset, and a length.
func (i *wasmInstance) view(args []any) ([]byte, error) {
	offset, is := uint32Of(args, 0)
	length, too := uint32Of(args, 1)
	if !is || !too {
		return nil, rangeError("a part of a memory is an offset and a length, which are whole numbers from 0")
	}
	bytes, ok := i.memory.Read(offset, length)
	if !ok {
		return nil, rangeError("%d bytes at %d are not within the memory, which has %d bytes", length, offset, i.memory.Size())
	}
	return bytes, nil
}

func uint32Of(args []any, at int) (uint32, bool) {
	n, ok := argument[float64](args, at)
	if whole, is := argument[int](args, at); is {
		n, ok = float64(whole), true
	}
	return uint32(max(n, 0)), ok && n >= 0 && n <= math.MaxUint32 && n == math.Trunc(n)
}

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
