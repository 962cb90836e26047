// Package module compiles and runs the programs of executable skills: a folder's module.ts, in a
// JavaScript machine that can do nothing but compute and ask its host (OSL-02, OSL-06, OSL-10).
//
// # The machine
//
// [Machine.Compile] turns TypeScript and what it imports from its own folder into one [Program].
// [Machine.Start] starts a fresh machine for one call of one of its exports, in a process of its own:
// this very binary ([Child] is among the first lines of main), confined by agent/sandbox, with no
// file, no network and no environment. All that it reaches are messages on its standard streams, and
// these are for the caller to answer: [Instance.Next] hands out the [Call] that the module made of
// `host`, and takes the [Answer]. What becomes of a call is not decided here.
//
//	caller ── Next(answers) ──► Instance ── frame ──► sandbox ─► rouse module-child ─► QuickJS
//	       ◄── Event ──────────          ◄── frame ──
//
// A frame is its length and JSON. Each side waits for the other, so that there is one frame on its
// way at a time. What the child sends is bounded and read as data: a machine that was taken over can
// make calls, and nothing else, which is what it could do before.
//
// # Time and chance
//
// A module sees a clock that stands still while it runs: [Start].Now at first, then [Answer].Now of the
// last answer. Timers are due by that clock. One that is due before an answer fires before it; where
// nothing but a timer is waited for, the child really waits, and the clock then shows when the timer was due.
// Math.random and crypto draw from [Start].Seed. A second run with the same answers therefore does
// what the first one did.
//
// # WebAssembly
//
// What [Start].WASM gives a module may be instantiated (host.wasm.instantiate). It runs in the child, beside QuickJS, compiled to machine
// code without checks of the time: a loop of it is ended with the process. It knows no host but the functions that the module gives it.
//
// # Bounds
//
// [Start].Timeout counts what the machine itself takes, waiting for its timers included and waiting for its
// host not. The machine is interrupted when it is over, and two seconds later its process is killed. [Start].MemoryMB bounds the
// machine, and with what the process itself needs, its process. How a module ended is an [EndStatus]: none of it
// is an error of the host.
//
// # What exists in it
//
// The language (ES2023) without eval and Function, so that what runs is what was compiled; what
// [Globals] lists; and of `host` what [Surface] names. Everything else is undefined.
package module
