package module

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tetratelabs/wazero/experimental"
	"modernc.org/quickjs"
)

// wasmAllocator allocates the memory of an instance, within its own limit and the limit of all
// instances.
type wasmAllocator struct {
	host  *wasmHost
	left  uint64 // remaining bytes of this instance
	bytes []byte
}

// Allocate implements [experimental.MemoryAllocator].
func (a *wasmAllocator) Allocate(least, _ uint64) experimental.LinearMemory {
	if least > min(a.left, a.host.free) {
		raise(rangeError("the WebAssembly module needs %d MiB of memory to begin with, and may have %d (memoryLimitMB, sandbox.maxMemoryMB)", (least+1<<20-1)>>20, min(a.left, a.host.free)>>20))
	}
	return a
}

// Reallocate implements [experimental.LinearMemory]. If it returns nil, memory.grow returns -1.
func (a *wasmAllocator) Reallocate(size uint64) []byte {
	more := size - uint64(len(a.bytes))
	if more > min(a.left, a.host.free) {
		return nil
	}
	a.left, a.host.free = a.left-more, a.host.free-more

	if size > uint64(cap(a.bytes)) {
		// Reserve more than needed, because modules often grow by one page at a time.
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

// access handles a memory operation of wasm.js.
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

// read returns bytes of the memory as a string with one character per byte.
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

// write writes bytes from a string with one character per byte, up to the given length.
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

// view returns the part of the memory with the given offset and length.
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

// WASM is a WebAssembly module that a module can instantiate with host.wasm.instantiate(ID). It
// runs in the process of the VM and can only call functions that the module passes to it. The
// caller must audit the code.
type WASM struct {
	ID      string
	Code    []byte
	Exports []string // functions that the module may call
	// MemoryMB is the memory limit of one instance in MiB. The memory limit of the VM applies to
	// all instances together.
	MemoryMB int
}

// Limits of the WebAssembly modules of a VM.
const (
	maxWASM      = 64 << 20 // bytes of code in all modules
	maxInstances = 100
	// wasmProcess is the additional memory in bytes of a process with WebAssembly, for compilation,
	// code and the call stack.
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

// wasmHeap returns the maximum WebAssembly memory of a VM in bytes. It is doubled, because growing
// needs both copies for a moment.
func wasmHeap(s *startRequest) int64 {
	if len(s.WASM) == 0 {
		return 0
	}
	return int64(s.MemoryMB) << 21
}

// wasmMemory returns the additional memory of a process for WebAssembly in bytes.
func wasmMemory(s *startRequest) int64 {
	if len(s.WASM) == 0 {
		return 0
	}
	return wasmHeap(s) + wasmProcess
}
