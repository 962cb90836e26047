package module

import (
	"maps"
	"slices"
)

// globals are what a machine has beside the language, and whether a module has it without naming it.
var globals = map[string]bool{
	"AbortController": true, "AbortSignal": true, "TextDecoder": true, "TextEncoder": true, "URL": true, "URLSearchParams": true,
	"atob": true, "btoa": true, "clearInterval": true, "clearTimeout": true, "console": true, "crypto": true,
	"queueMicrotask": true, "setInterval": true, "setTimeout": true, "structuredClone": true,
	"Intl": true, "fetch": false, "performance": false,
}

// Globals are the names that [Start].AllowedGlobals can hold, sorted: what a machine can have beside the language. Without
// any, a module has all but fetch and performance. fetch is host.network.fetch, where that exists.
func Globals() []string { return slices.Sorted(maps.Keys(globals)) }

// existing are those of a module that names some, or none.
func existing(named []string) []string {
	out := []string{"console"}
	for _, name := range Globals() {
		if name != "console" && (len(named) == 0 && globals[name] || slices.Contains(named, name)) {
			out = append(out, name)
		}
	}
	return out
}
