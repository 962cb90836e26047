package yaml

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/redact"
	"rouse/cmd/internal/config"
)

// maxProblems limits the number of collected problems, for files that are not configurations.
const maxProblems = 1000

// Document is a configuration that was read: its settings, their positions, and the problems.
type Document struct {
	Options
	Config   *config.Config
	Origins  []Origin // files that were read
	Globs    []Origin // patterns of include
	root     *node    // root of the main file; nil if it cannot be read
	problems []config.Problem
	wrong    map[string]bool // paths with a problem
	secrets  []string
	unset    []string           // names of secrets that are not set
	refs     []config.SecretRef // references to the secret store
	held     []config.Held
}

// Origin is a file or a glob pattern from which a configuration is read.
type Origin struct {
	What string // content of the file for messages, such as "the configuration"
	Path string
	At   config.Position // position of the setting that names it; line 0 without a setting
}

// HasRoot reports whether the main file could be read, so that settings can be checked.
func (d *Document) HasRoot() bool { return d.root != nil }

// HasProblem reports whether a problem of a path is known.
func (d *Document) HasProblem(path string) bool { return d.wrong[path] }

// Written returns the text of a scalar as written, and false if the path is not set.
func (d *Document) Written(path string) (string, bool) {
	n, whole := d.root.find(path)
	return n.text, whole
}

// HoldsSecret reports whether a text contains a secret.
func (d *Document) HoldsSecret(text string) bool {
	return slices.ContainsFunc(d.secrets, func(s string) bool { return strings.Contains(text, s) })
}

// AsksForSecret reports whether a secret of the store is used below a path.
func (d *Document) AsksForSecret(path string) bool {
	return slices.ContainsFunc(d.refs, func(r config.SecretRef) bool { return strings.HasPrefix(r.Path, path+".") })
}

// Grant returns a secret of the store that is granted to an agent. It reports a missing secret.
func (d *Document) Grant(path, name string) string {
	at := d.Place(path + ".name")
	value, problem, hint := d.lookup(at, path, name)
	if problem != "" {
		d.lacks(at, path, path+".name", name, problem, hint)
	}
	return value
}

// Problem adds a problem at a position and returns it, so that the caller can set more fields.
func (d *Document) Problem(at config.Position, path, format string, args ...any) *config.Problem {
	if len(d.problems) > maxProblems {
		return &config.Problem{} // beyond the limit, so it is not shown
	}
	d.wrong[path] = true
	d.problems = append(d.problems, config.Problem{File: at.File, Line: at.Line, Column: at.Column, Path: path, Message: fmt.Sprintf(format, args...)})
	return &d.problems[len(d.problems)-1]
}

// Place returns the position of the value at a path, or of its nearest parent that is set.
func (d *Document) Place(path string) config.Position {
	if d.root == nil {
		return config.Position{}
	}
	nearest, _ := d.root.find(path)
	return nearest.at
}

// Given reports whether a path is set in the file.
func (d *Document) Given(path string) bool {
	if d.root == nil {
		return false
	}
	_, whole := d.root.find(path)
	return whole
}

// references returns the references to secrets, with the kind and name of the items that contain
// them.
func (d *Document) references() []config.SecretRef {
	words := map[string]string{"models": "model", "agents": "agent", "mcp": "MCP server", "jobs": "job", "notifications": "channel"}
	for i := range d.refs {
		r := &d.refs[i]
		if m := listed.FindStringSubmatch(r.Path); m != nil {
			r.Of = strings.TrimSpace(words[m[2]] + " " + d.nameAt(r.Path))
		}
	}
	return d.refs
}

// Finish stores the secrets that the settings use in the settings.
func (d *Document) Finish() {
	d.Config.Secrets = config.SecretUse{Values: d.sorted(), Refs: d.references(), Unset: d.unset, Held: d.held}
}

// Err sorts the problems by position. It stores the warnings in the settings and returns the
// errors.
func (d *Document) Err() error {
	cfg := d.Config
	seen := map[config.Problem]bool{}
	var wrong, doubtful []config.Problem
	hide := d.masker()
	for _, p := range d.problems {
		p.Path, p.Message, p.Hint, p.Name = hide.Replace(p.Path), hide.Replace(p.Message), hide.Replace(p.Hint), hide.Replace(d.nameAt(p.Path))
		key := config.Problem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message}
		if seen[key] {
			continue // jobs share the values of defaults: and of aliases, so a problem can repeat
		}

		if seen[key] = true; p.Warning {
			doubtful = append(doubtful, p)
		} else {
			wrong = append(wrong, p)
		}
	}

	order := func(a, b config.Problem) int {
		return cmp.Or(slices.Index(cfg.Files, a.File)-slices.Index(cfg.Files, b.File), a.Line-b.Line, a.Column-b.Column,
			strings.Compare(a.File, b.File), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	}
	// Maps are iterated above, so sort the problems.
	slices.SortStableFunc(wrong, order)
	slices.SortStableFunc(doubtful, order)
	cfg.Warnings = doubtful
	if len(d.problems) > maxProblems {
		wrong = append(wrong, config.Problem{File: cfg.Files[0], Line: 1, Column: 1, Message: fmt.Sprintf("there are more than %d problems; the rest is not listed", maxProblems)})
	}
	if len(wrong) == 0 {
		return nil
	}

	return &config.Errors{Problems: wrong}
}

// masker returns a redactor for problems. It also finds secrets that were shortened in a message.
func (d *Document) masker() *redact.Redactor {
	secrets := slices.Clone(d.secrets)
	for _, s := range d.secrets {
		if start, cut := strings.CutSuffix(config.Short(s), "…"); cut {
			secrets = append(secrets, start)
		}
	}
	return redact.New(secrets)
}

// listed matches a path inside an item of a list.
var listed = regexp.MustCompile(`^((models|agents|mcp|jobs|notifications)\[\d+\])(?:\.|$)`)

// nameAt returns the name of the item that contains a path, or "".
func (d *Document) nameAt(path string) string {
	m := listed.FindStringSubmatch(path)
	// For a problem of the name itself, do not repeat the wrong name.
	if m == nil || path == m[1]+".name" || d.root == nil {
		return ""
	}
	n, found := d.root.find(m[1] + ".name")
	if !found || n.kind != scalar || !config.NameForm.MatchString(n.text) {
		return ""
	}
	return n.text
}

// Resolve returns an absolute path. Relative paths are relative to the folder of file, and ~ is
// the user's home folder.
func (d *Document) Resolve(file, text string) string {
	if rest, ok := strings.CutPrefix(filepath.ToSlash(text), "~"); ok && (rest == "" || rest[0] == '/') {
		if home, err := config.UserHome(d.Getenv); err == nil {
			return filepath.Join(home, rest)
		}
	}

	if filepath.IsAbs(text) {
		return filepath.Clean(text)
	}
	return filepath.Join(filepath.Dir(file), text)
}
