package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"modernc.org/quickjs"
)

// maxWASMDepth is the maximum nesting depth of calls between the module and WebAssembly. Each call
// uses stack of the process.
const maxWASMDepth = 50

// wasmHost is the WebAssembly host of a VM. It runs in a child process, and only wasm.js calls it.
type wasmHost struct {
	vm          *machineVM
	modules     []WASM
	interpreted bool                             // the system does not allow executable memory
	runtime     wazero.Runtime                   // nil until needed
	code        map[string]wazero.CompiledModule // by module ID

	instances []*wasmInstance
	free      uint64 // remaining memory of all instances in bytes
	depth     int    // nesting depth of calls
}

// wasmInstance is an instance of a WebAssembly module.
type wasmInstance struct {
	module api.Module
	memory api.Memory // nil if it exports no memory
}

// wasmError is an error that the module can catch. Its text is prefixed with its name.
type wasmError struct{ name, text string }

func (e *wasmError) Error() string { return e.name + "|" + e.text }

func rangeError(format string, args ...any) error {
	return &wasmError{"RangeError", fmt.Sprintf(format, args...)}
}

func linkError(format string, args ...any) error {
	return &wasmError{"LinkError", fmt.Sprintf(format, args...)}
}

// newWASMHost returns a host. It compiles modules only on demand, because most runs do not use
// them.
func newWASMHost(vm *machineVM, s *startRequest) *wasmHost {
	return &wasmHost{vm: vm, modules: s.WASM, code: map[string]wazero.CompiledModule{}, free: uint64(s.MemoryMB) << 20}
}

// call handles a request of wasm.js. The first argument is the operation.
func (w *wasmHost) call(args []any) (any, error) {
	what, _ := argument[string](args, 0)
	if what == "describe" || what == "instantiate" {
		id, _ := argument[string](args, 1)
		at := slices.IndexFunc(w.modules, func(m WASM) bool { return m.ID == id })
		if at < 0 {
			return nil, linkError("the manifest declares no WebAssembly module %q", id)
		}
		if what == "describe" {
			return w.describe(w.modules[at])
		}
		return w.instantiate(w.modules[at])
	}

	at, _ := argument[int](args, 1)
	if at < 0 || at >= len(w.instances) {
		return nil, linkError("there is no such instance")
	}
	i := w.instances[at]
	if i.module == nil {
		return nil, linkError("the instance is not made yet")
	}
	switch what {
	case "call":
		name, _ := argument[string](args, 2)
		words, _ := argument[string](args, 3)
		return w.callExport(i, name, words)
	case "size", "read", "write":
		return i.access(what, args[2:])
	}
	return nil, linkError("there is no %s", what)
}

func argument[T any](args []any, at int) (T, bool) {
	var none T
	if at >= len(args) {
		return none, false
	}
	v, ok := args[at].(T)
	return v, ok
}

// ---- code

// wasmFunction is a function type, for wasm.js. Value types are i32, i64, f32 and f64.
type wasmFunction struct {
	Module  string   `json:"module,omitempty"` // only for an import
	Name    string   `json:"name"`
	Params  []string `json:"params"`
	Results []string `json:"results"`
}

// describe compiles a module and returns its imports and exports as JSON.
func (w *wasmHost) describe(m WASM) (any, error) {
	code, err := w.compile(m)
	if err != nil {
		return nil, err
	}

	var out struct {
		Imports []wasmFunction `json:"imports"`
		Exports []wasmFunction `json:"exports"`
		Memory  bool           `json:"memory"`
	}
	out.Memory = len(code.ExportedMemories()) > 0
	for _, f := range code.ImportedFunctions() {
		module, name, _ := f.Import()
		one, err := typed(name, f)
		if err != nil {
			return nil, err
		}
		one.Module = module
		out.Imports = append(out.Imports, one)
	}

	exported, memories := code.ExportedFunctions(), code.ExportedMemories()
	for _, name := range m.Exports {
		f, ok := exported[name]
		if _, is := memories[name]; is {
			continue
		}
		if !ok {
			return nil, linkError("the manifest names the export %q of the WebAssembly module %s, which has no function of that name", name, m.ID)
		}
		one, err := typed(name, f)
		if err != nil {
			return nil, err
		}
		out.Exports = append(out.Exports, one)
	}

	text, err := json.Marshal(out)
	return string(text), err
}

// typed returns the type of a function. It returns an error if a value is not a number.
func typed(name string, f api.FunctionDefinition) (wasmFunction, error) {
	out := wasmFunction{Name: name, Params: []string{}, Results: []string{}}
	for _, list := range []struct {
		types []api.ValueType
		into  *[]string
	}{{f.ParamTypes(), &out.Params}, {f.ResultTypes(), &out.Results}} {
		for _, t := range list.types {
			if !slices.Contains([]api.ValueType{api.ValueTypeI32, api.ValueTypeI64, api.ValueTypeF32, api.ValueTypeF64}, t) {
				return out, linkError("the function %q takes or gives what is no number (%s)", name, api.ValueTypeName(t))
			}
			*list.into = append(*list.into, api.ValueTypeName(t))
		}
	}
	return out, nil
}

// compile compiles a module once.
func (w *wasmHost) compile(m WASM) (_ wazero.CompiledModule, err error) {
	if code := w.code[m.ID]; code != nil {
		return code, nil
	}
	w.open()
	code, err := w.runtime.CompileModule(context.Background(), m.Code)
	if err != nil {
		return nil, &wasmError{"CompileError", fmt.Sprintf("the WebAssembly module %s is wrong: %v", m.ID, err)}
	}
	if len(code.ImportedMemories()) > 0 {
		return nil, linkError("the WebAssembly module %s imports a memory, and only functions can be imported; let it have one of its own", m.ID)
	}
	w.code[m.ID] = code
	return code, nil
}

// open creates the engine. Compiled code does not check the timeout, because the checks make small
// loops much slower; its process is killed instead. The interpreter checks the timeout. It is used
// on systems without executable memory.
func (w *wasmHost) open() {
	if w.runtime != nil {
		return
	}

	ctx, common := context.Background(), func(c wazero.RuntimeConfig) wazero.RuntimeConfig { return c.WithDebugInfoEnabled(false) }
	if !w.interpreted {
		if w.runtime = wazero.NewRuntimeWithConfig(ctx, common(wazero.NewRuntimeConfigCompiler())); compiles(ctx, w.runtime) {
			return
		}
		w.interpreted = true
	}
	w.runtime = wazero.NewRuntimeWithConfig(ctx, common(wazero.NewRuntimeConfigInterpreter()).WithCloseOnContextDone(true))
}

// compiles reports whether an engine can generate machine code. It compiles an empty function,
// which panics if that is not possible.
func compiles(ctx context.Context, r wazero.Runtime) (works bool) {
	defer func() {
		if recover() != nil {
			works = false
		}
	}()
	_, err := r.CompileModule(ctx, []byte(wasmOfNothing))
	return err == nil
}

// wasmOfNothing is a module with an empty function.
const wasmOfNothing = "\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x0a\x04\x01\x02\x00\x0b"

// ---- instances

// instantiate creates an instance of a module and returns its number. It calls imported functions
// through wasm.js, by their index in the description.
func (w *wasmHost) instantiate(m WASM) (_ any, err error) {
	code, err := w.compile(m)
	if err != nil {
		return nil, err
	}
	switch {
	case len(w.instances) >= maxInstances:
		return nil, rangeError("there are %d instances of WebAssembly modules already, which is the most", maxInstances)
	case w.depth > 0: // numbers are assigned in order of completion
		return nil, linkError("an imported function cannot make an instance; make it before")
	}

	// A start function runs before the instance exists. Its imports need the number of the
	// instance.
	number := len(w.instances)
	w.instances = append(w.instances, &wasmInstance{})
	defer func() {
		if err != nil {
			w.instances = w.instances[:number]
		}
	}()
	ctx, cancel := w.timed()
	defer cancel()
	ctx, err = w.withImports(ctx, code, number)
	if err != nil {
		return nil, err
	}

	memory := &wasmAllocator{host: w, left: uint64(m.MemoryMB) << 20}
	var module api.Module
	err = w.entered(func() error {
		return recovered(func() (err error) {
			config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
			module, err = w.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, memory), code, config)
			return err
		})
	})
	if err != nil {
		memory.Free() // the engine does not free it if a start function fails
		return nil, w.failure(ctx, err)
	}

	i := w.instances[number]
	i.module = module
	for name := range code.ExportedMemories() { // there is at most one
		i.memory = module.ExportedMemory(name)
	}
	return number, nil
}

// withImports connects the imports of an instance to wasm.js.
func (w *wasmHost) withImports(ctx context.Context, code wazero.CompiledModule, instance int) (context.Context, error) {
	builders := map[string]wazero.HostModuleBuilder{}
	for at, f := range code.ImportedFunctions() {
		module, name, _ := f.Import()
		if builders[module] == nil {
			builders[module] = w.runtime.NewHostModuleBuilder(module)
		}
		params, results := f.ParamTypes(), f.ResultTypes()
		builders[module].NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			w.callImport(instance, at, len(params), len(results), stack)
		}), params, results).Export(name)
	}

	modules := map[string]api.Module{}
	for name, b := range builders {
		compiled, err := b.Compile(ctx)
		if err == nil {
			modules[name], err = w.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName(""))
		}
		if err != nil {
			return nil, linkError("the imports %q cannot be given: %v", name, err)
		}
	}
	return experimental.WithImportResolver(ctx, func(name string) api.Module { return modules[name] }), nil
}

// callImport calls a JavaScript function for an instance. An exception ends the call of the export
// that led here. wasm.js keeps the exception.
func (w *wasmHost) callImport(instance, at, params, results int, stack []uint64) {
	given, err := w.vm.step.Call(quickjs.UndefinedValue, "import", instance, at, joinWords(stack[:params]))
	if err == nil {
		text, _ := given.(string)
		err = parseWords(text, stack[:results])
	}
	if err != nil {
		raise(&wasmThrown{err})
	}
}

// joinWords formats stack words for wasm.js as decimal numbers, separated by commas.
func joinWords(stack []uint64) string {
	words := make([]string, len(stack))
	for i, word := range stack {
		words[i] = strconv.FormatUint(word, 10)
	}
	return strings.Join(words, ",")
}

// parseWords parses stack words from wasm.js.
func parseWords(text string, stack []uint64) (err error) {
	for i := range stack {
		var word string
		word, text, _ = strings.Cut(text, ",")
		if stack[i], err = strconv.ParseUint(word, 10, 64); err != nil {
			return &wasmError{"TypeError", "a number is missing"}
		}
	}
	return nil
}

// wasmThrown ends a WebAssembly call with the exception of an imported function.
type wasmThrown struct{ error }

func (t *wasmThrown) Unwrap() error { return t.error }

// raise aborts the engine with an error. The engine requires a panic in callbacks.
func raise(err error) {
	panic(err) //nolint:forbidigo // callbacks cannot return an error; the engine or recovered catches the panic
}

// callExport calls a function of an instance. It parses its arguments from words and returns the
// result words.
func (w *wasmHost) callExport(i *wasmInstance, name, words string) (any, error) {
	f := i.module.ExportedFunction(name)
	if f == nil {
		return nil, linkError("there is no export %q", name)
	}
	params, results := len(f.Definition().ParamTypes()), len(f.Definition().ResultTypes())
	stack := make([]uint64, max(params, results))
	if err := parseWords(words, stack[:params]); err != nil {
		return nil, err
	}

	ctx, cancel := w.timed()
	defer cancel()
	if err := w.entered(func() error { return f.CallWithStack(ctx, stack) }); err != nil {
		return nil, w.failure(ctx, err)
	}

	return joinWords(stack[:results]), nil
}

// timed returns a context that ends with the execution time. Only the interpreter checks it.
func (w *wasmHost) timed() (context.Context, context.CancelFunc) {
	if !w.interpreted {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), w.vm.until)
}

// entered calls do unless calls are nested too deeply.
func (w *wasmHost) entered(do func() error) error {
	if w.depth >= maxWASMDepth {
		return rangeError("calls of WebAssembly and of the functions that it imports are nested %d deep, which is the most", maxWASMDepth)
	}
	w.depth++
	defer func() { w.depth-- }()
	return do()
}

// recovered converts a panic to an error. The memory allocator has no other way to return an error.
func recovered(do func() error) (err error) {
	defer func() {
		p := recover()
		if refused, ok := p.(*wasmError); ok {
			err = refused
		} else if p != nil {
			err = fmt.Errorf("the engine failed: %v", p)
		}
	}()
	return do()
}

// failure converts an error of the engine to an error that wasm.js throws.
func (w *wasmHost) failure(ctx context.Context, err error) error {
	var own *wasmError
	var thrown *wasmThrown
	switch {
	case ctx.Err() != nil:
		return &wasmError{"RuntimeError", "its time is over"}
	case errors.As(err, &thrown):
		return &wasmError{"thrown", thrown.Error()}
	case errors.As(err, &own):
		return own
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return &wasmError{"RuntimeError", strings.TrimPrefix(text, "wasm error: ")}
}

// ---- memory
