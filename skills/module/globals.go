package module

import (
	"maps"
	"slices"
)

// globals are the names that a VM can provide besides the language. The value is true if a name is
// available by default.
var globals = map[string]bool{
	"AbortController": true, "AbortSignal": true, "TextDecoder": true, "TextEncoder": true, "URL": true, "URLSearchParams": true,
	"atob": true, "btoa": true, "clearInterval": true, "clearTimeout": true, "console": true, "crypto": true,
	"queueMicrotask": true, "setInterval": true, "setTimeout": true, "structuredClone": true,
	"Intl": true, "fetch": false, "performance": false,
}

// Globals returns the sorted names that are valid in [Start].AllowedGlobals. If AllowedGlobals is
// empty, all of them except fetch and performance are available. fetch is an alias of
// host.network.fetch and exists only if that exists.
func Globals() []string { return slices.Sorted(maps.Keys(globals)) }

// existing returns the names that are available to a module with the given AllowedGlobals.
func existing(named []string) []string {
	out := []string{"console"}
	for _, name := range Globals() {
		if name != "console" && (len(named) == 0 && globals[name] || slices.Contains(named, name)) {
			out = append(out, name)
		}
	}
	return out
}
