package shell

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"rouse/internal/urlpath"
)

// anyRest as the last element of a grant matches any number of further arguments.
const anyRest = "*"

// Grant allows the commands that its pattern covers.
type Grant struct {
	// Argv is the exact program, followed by a pattern for each argument. An element with *, ? or [
	// is a pattern of path.Match. Its wildcards do not match a slash. A wildcard at the beginning
	// of an element does not match the - of an option. A last element * matches any number of
	// arguments.
	Argv    []string
	Network bool // the command may use the host's network
	// Written is Argv as configured, if its program or script is a path relative to the
	// configuration file. A command may use these paths as well. It runs the program in Argv.
	Written []string
}

// Check returns an error if the grant is invalid.
func (g Grant) Check() error {
	if len(g.Argv) == 0 || g.Argv[0] == "" {
		return errors.New("argv must name a program")
	}
	if isPattern(g.Argv[0]) {
		return fmt.Errorf("the program %q must be one name or path, not a pattern", g.Argv[0])
	}

	for _, element := range g.Argv[1:] {
		if _, err := path.Match(element, ""); isPattern(element) && err != nil {
			return fmt.Errorf("the pattern %q is broken", element)
		}
	}

	return nil
}

// Covers reports whether the grant allows a command.
func (g Grant) Covers(argv []string) bool {
	return g.Check() == nil && (coversArgv(g.Argv, argv) || coversArgv(g.Written, argv))
}

func coversArgv(pattern, argv []string) bool {
	if len(pattern) == 0 || len(argv) == 0 || argv[0] != pattern[0] {
		return false
	}

	pattern, argv = pattern[1:], argv[1:]
	if n := len(pattern); n > 0 && pattern[n-1] == anyRest {
		pattern = pattern[:n-1]
		if len(argv) < len(pattern) {
			return false
		}
		argv = argv[:len(pattern)]
	}
	if len(pattern) != len(argv) {
		return false
	}

	for i, element := range pattern {
		if !matches(element, argv[i]) {
			return false
		}
	}

	return true
}

// named returns a covered command with the configured paths replaced by those of Argv.
func (g Grant) named(argv []string) []string {
	out := slices.Clone(argv)
	for i, word := range g.Written {
		if i < len(out) && out[i] == word && word != g.Argv[i] {
			out[i] = g.Argv[i]
		}
	}
	return out
}

// matches reports whether an argument matches one element of a grant.
func matches(element, argument string) bool {
	if !isPattern(element) {
		return element == argument
	}
	// Patterns are meant for operands. They must not allow unexpected options.
	if strings.HasPrefix(argument, "-") && isPattern(element[:1]) {
		return false
	}

	ok, err := path.Match(element, argument)
	return err == nil && ok && !leavesURL(argument)
}

// leavesURL reports whether an argument is a URL whose path servers or programs interpret
// differently. curl resolves dot segments and expands {..} and [1-2] itself.
func leavesURL(argument string) bool {
	_, rest, ok := strings.Cut(argument, "://")
	if !ok {
		return false
	}
	_, at, _ := strings.Cut(rest, "/")
	at, _, _ = strings.Cut(at, "?")
	at, _, _ = strings.Cut(at, "#")
	return urlpath.Ambiguous("/"+at) != "" || strings.ContainsAny(at, "{}[]")
}

func isPattern(element string) bool { return strings.ContainsAny(element, `*?[`) }

// coveringGrant returns a grant that covers a command, or nil. It prefers the first grant without
// network.
func coveringGrant(grants []Grant, argv []string) *Grant {
	var found *Grant
	for i := range grants {
		if grants[i].Covers(argv) && (found == nil || found.Network && !grants[i].Network) {
			found = &grants[i]
		}
	}
	return found
}
