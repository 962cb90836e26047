// Package module compiles and runs the programs of executable skills. A program is a module.ts that
// runs in a JavaScript VM, which can only compute and call its host.
//
// # The VM
//
// [Machine.Compile] compiles TypeScript and its imports from the same folder to a [Program].
// [Machine.Start] starts a new VM for one call of an export. The VM runs in its own process, which
// executes the current binary ([Child] must be called early in main). The process is sandboxed by
// agent/sandbox and has no access to files, the network or the environment. It only exchanges
// messages on its standard streams. [Instance.Next] returns each [Call] that the module makes to
// `host` and takes the [Answer]. The caller decides how to handle calls.
//
//	caller ── Next(answers) ──► Instance ── frame ──► sandbox ─► rouse module-child ─► QuickJS
//	       ◄── Event ──────────          ◄── frame ──
//
// A frame is a length followed by JSON. Each side waits for the other, so there is only one frame
// in transit. Frames of the child are limited in size and treated as untrusted data. A compromised
// VM can therefore only make calls, which a module can do anyway.
//
// # Time and randomness
//
// The module's clock stands still while the module runs. It starts at [Start].Now and is set to
// [Answer].Now by each answer. Timers are relative to this clock. A timer that is due before an
// answer fires before the answer. If the module waits only for a timer, the child sleeps, and the
// clock then shows the time of the timer. Math.random and crypto are seeded with [Start].Seed. A
// second run with the same answers therefore behaves identically.
//
// # WebAssembly
//
// A module can instantiate the WebAssembly modules in [Start].WASM with host.wasm.instantiate. They
// run in the child process next to QuickJS, compiled to machine code that cannot be interrupted. An
// endless loop is stopped by killing the process. WebAssembly code can only call functions that the
// module passes to it.
//
// # Limits
//
// [Start].Timeout limits the execution time of the VM. It includes waiting for timers but not
// waiting for the host. The VM is interrupted after the timeout, and its process is killed two
// seconds later. [Start].MemoryMB limits the memory of the VM; the process has a fixed amount in
// addition. An [EndStatus] describes how a module ended. No end of a module is an error of the
// host.
//
// # Available names
//
// A module can use the language (ES2023) without eval and Function, the names in [Globals], and the
// members of `host` in its [Surface]. Without eval and Function, only compiled code can run.
// Everything else is undefined.
package module
