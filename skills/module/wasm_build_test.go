package module_test

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The types of values.
const (
	i32 = 0x7f
	i64 = 0x7e
	f64 = 0x7c
)

// wasmFunc is a function of a test module.
type wasmFunc struct {
	export          string // "" if it has no name
	params, results []byte
	locals          int    // of type i32, in addition to parameters
	code            []byte // without the final end
}

// wasmModule describes a WebAssembly test module. Function numbers begin with the imports.
type wasmModule struct {
	imports []wasmFunc // export is "module.name"
	funcs   []wasmFunc
	memory  []uint32 // minimum and maximum pages; nil for no memory
	start   int      // function number; 0 for none
	table   uint32   // number of entries
	data    string   // at offset 0
}

// build returns the binary format of the module.
func (m wasmModule) build() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, items ...[]byte) {
		if len(items) == 0 {
			return
		}
		body := slices.Concat(append([][]byte{uleb(len(items))}, items...)...)
		out = append(append(append(out, id), uleb(len(body))...), body...)
	}

	var types, imports, funcs, exports, codes [][]byte
	for i, f := range slices.Concat(m.imports, m.funcs) {
		types = append(types, slices.Concat([]byte{0x60}, vector(f.params), vector(f.results)))
		if i < len(m.imports) {
			module, name, _ := bytes.Cut([]byte(f.export), []byte("."))
			imports = append(imports, slices.Concat(vector(module), vector(name), []byte{0}, uleb(i)))
			continue
		}
		funcs = append(funcs, uleb(i))
		if f.export != "" {
			exports = append(exports, slices.Concat(vector([]byte(f.export)), []byte{0}, uleb(i)))
		}
		body := slices.Concat([]byte{0}, f.code, []byte{0x0b})
		if f.locals > 0 {
			body = slices.Concat([]byte{1}, uleb(f.locals), []byte{i32}, f.code, []byte{0x0b})
		}
		codes = append(codes, vector(body))
	}

	section(1, types...)
	section(2, imports...)
	section(3, funcs...)
	if m.table > 0 {
		section(4, slices.Concat([]byte{0x70, 0}, uleb(int(m.table))))
	}
	if len(m.memory) > 0 {
		limits := slices.Concat([]byte{byte(len(m.memory) - 1)}, uleb(int(m.memory[0])))
		for _, most := range m.memory[1:] {
			limits = append(limits, uleb(int(most))...)
		}
		section(5, limits)
		exports = append(exports, slices.Concat(vector([]byte("memory")), []byte{2, 0}))
	}
	section(7, exports...)
	if m.start > 0 {
		out = append(out, 8, byte(len(uleb(m.start))))
		out = append(out, uleb(m.start)...)
	}
	section(10, codes...)
	if m.data != "" {
		section(11, slices.Concat([]byte{0, 0x41, 0, 0x0b}, vector([]byte(m.data))))
	}
	return out
}

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func vector(b []byte) []byte { return append(uleb(len(b)), b...) }
