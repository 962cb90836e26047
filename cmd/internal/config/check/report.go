package check

import (
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// report reports problems of a document.
type report struct {
	d   *yaml.Document
	cfg *config.Config
}

// oneOf returns which of several mutually exclusive keys is set. If not exactly one is set, it
// returns "" and reports that, unless the mapping already has a problem.
func (r report) oneOf(path string, keys ...string) string {
	var given []string
	for _, key := range keys {
		if r.d.Given(path + "." + key) {
			given = append(given, key)
		}
	}
	last := len(keys) - 1
	message := "give exactly one of " + strings.Join(keys[:last], ", ") + " and " + keys[last]
	switch {
	case len(given) == 1:
		return given[0]
	case len(given) > 1:
		r.bad(path+"."+given[1], "%s, not %s", message, strings.Join(given, " and "))
	case r.d.Given(path) && r.hasNoProblem(path): // otherwise a misspelt key was reported
		r.bad(path, "%s", message)
	}
	return ""
}

// notEmpty reports a text that is set but blank.
func (r report) notEmpty(path, value, message string) {
	if strings.TrimSpace(value) == "" && r.d.Given(path) && r.hasNoProblem(path) {
		r.bad(path, "%s", message)
	}
}

func (r report) bad(path, format string, args ...any) *config.Problem {
	return r.d.Problem(r.d.Place(path), path, format, args...)
}

func (r report) warn(path, format string, args ...any) *config.Problem {
	p := r.bad(path, format, args...)
	p.Warning = true
	return p
}

func (r report) reference(path, what, name string, known []string) {
	if name != "" && !slices.Contains(known, name) {
		r.bad(path, "%s", text.NoSuch(what, name, known))
	}
}

// zone checks a time zone. It refuses an empty one, which would depend on the machine.
func (r report) zone(path, name string) {
	switch _, err := schedule.Zone(name); {
	case name == "" && r.d.Given(path) && r.hasNoProblem(path):
		r.bad(path, "is empty; write an IANA name like Europe/Berlin, or leave the key out")
	case name != "" && err != nil:
		r.bad(path, "%s", err.Error())
	}
}

// hasNoProblem reports whether no problem of a path is known yet.
func (r report) hasNoProblem(path string) bool { return !r.d.HasProblem(path) }

// unique reports duplicate names. They ignore case, because names become folders.
func unique[T any](r report, key string, items []T, of func(T) config.Name) []string {
	seen := map[string]string{}
	var names []string
	for at, item := range config.Each(key, items) {
		name, path := string(of(*item)), at+".name"
		if name == "" {
			continue
		}

		if first, twice := seen[strings.ToLower(name)]; twice {
			r.bad(path, "the name %q is taken, at %s (names are the same whatever their case)", name, r.d.Place(first))
		} else {
			seen[strings.ToLower(name)] = path
		}

		names = append(names, name)
	}

	return names
}
