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

// maxWASMDepth is how deeply calls from the module to WebAssembly and back can be nested: each takes a part of the process's stack.
const maxWASMDepth = 50

// wasmHost is the WebAssembly of a machine. It lives in a child, beside QuickJS, and wasm.js is all that calls it.
type wasmHost struct {
	vm          *machineVM
	modules     []WASM
	interpreted bool                             // this machine makes no memory executable
	runtime     wazero.Runtime                   // nil until it is needed
	code        map[string]wazero.CompiledModule // by the id of its module

	instances []*wasmInstance
	free      uint64 // bytes of memory that instances may still take
	depth     int    // of calls
}

// wasmInstance is an instance of a module.
type wasmInstance struct {
	module api.Module
	memory api.Memory // nil: it shows none
}

// wasmError is an error that the module can catch: its name comes before the message.
type wasmError struct{ name, text string }

func (e *wasmError) Error() string { return e.name + "|" + e.text }

func rangeError(format string, args ...any) error {
	return &wasmError{"RangeError", fmt.Sprintf(format, args...)}
}

func linkError(format string, args ...any) error {
	return &wasmError{"LinkError", fmt.Sprintf(format, args...)}
}

// newWASMHost compiles nothing yet: most runs of a module may need none of it.
func newWASMHost(vm *machineVM, s *startRequest) *wasmHost {
	return &wasmHost{vm: vm, modules: s.WASM, code: map[string]wazero.CompiledModule{}, free: uint64(s.MemoryMB) << 20}
}

// call answers wasm.js: what it wants, and of what.
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

// wasmFunction is the type of a function, as wasm.js needs it. Types are those of WebAssembly: i32, i64, f32, f64.
type wasmFunction struct {
	Module  string   `json:"module,omitempty"` // of an import
	Name    string   `json:"name"`
	Params  []string `json:"params"`
	Results []string `json:"results"`
}

// describe compiles a module, and says as JSON what of it can be called, and which functions it needs.
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

// typed is the type of a function all of whose values are numbers.
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

// open makes the engine. Machine code has no checks of the time, which cost thirty times of what a small loop takes: its process
// is killed when the time is over. The interpreter, which is for machines that make no memory executable, has them.
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

// compiles tries an engine with a function that does nothing: it panics where no machine code can be made.
func compiles(ctx context.Context, r wazero.Runtime) (works bool) {
	defer func() {
		if recover() != nil {
			works = false
		}
	}()
	_, err := r.CompileModule(ctx, []byte(wasmOfNothing))
	return err == nil
}

// wasmOfNothing is a module with a function of no parameters, results and code.
const wasmOfNothing = "\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x0a\x04\x01\x02\x00\x0b"

// ---- instances

// instantiate makes an instance of a module that was described, and gives its number. Functions that it imports are those that
// wasm.js has for it, by their places in the description.
func (w *wasmHost) instantiate(m WASM) (_ any, err error) {
	code, err := w.compile(m)
	if err != nil {
		return nil, err
	}
	switch {
	case len(w.instances) >= maxInstances:
		return nil, rangeError("there are %d instances of WebAssembly modules already, which is the most", maxInstances)
	case w.depth > 0: // numbers are given in the order in which instances are finished
		return nil, linkError("an imported function cannot make an instance; make it before")
	}

	// A start function is called before there is an instance, and calls imports by its number.
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
		memory.Free() // the engine does not, where a start function fails
		return nil, w.failure(ctx, err)
	}

	i := w.instances[number]
	i.module = module
	for name := range code.ExportedMemories() { // there is one at most
		i.memory = module.ExportedMemory(name)
	}
	return number, nil
}

// withImports has the imports of an instance be what wasm.js has for it.
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

// callImport calls a function of the module for an instance. What that throws ends the call of the export that led here, and is
// kept by wasm.js.
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

// joinWords writes words of the stack for wasm.js: decimal numbers, separated by commas.
func joinWords(stack []uint64) string {
	words := make([]string, len(stack))
	for i, word := range stack {
		words[i] = strconv.FormatUint(word, 10)
	}
	return strings.Join(words, ",")
}

// parseWords reads words of wasm.js.
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

// wasmThrown ends a call of WebAssembly with what an imported function threw.
type wasmThrown struct{ error }

func (t *wasmThrown) Unwrap() error { return t.error }

// raise ends what the engine does with an error, as it wants it of who is called by it.
func raise(err error) {
	panic(err) //nolint:forbidigo // there is no other way out of what returns no error; the engine, or recovered, catches it
}

// callExport calls a function of an instance with words of the stack, and returns those of its results.
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

// timed ends with the module's own time, for the engine that looks at it.
func (w *wasmHost) timed() (context.Context, context.CancelFunc) {
	if !w.interpreted {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), w.vm.until)
}

// entered does what calls WebAssembly, unless such calls are nested too deeply.
func (w *wasmHost) entered(do func() error) error {
	if w.depth >= maxWASMDepth {
		return rangeError("calls of WebAssembly and of the functions that it imports are nested %d deep, which is the most", maxWASMDepth)
	}
	w.depth++
	defer func() { w.depth-- }()
	return do()
}

// recovered has a memory that is refused be an error: the engine has no other way to be told.
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

// failure is what wasm.js throws for an error of the engine.
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
