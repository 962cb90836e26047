package eval

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"rouse/internal/domain"
)

//go:embed scenarios/*.yaml
var builtin embed.FS

// unknownKey matches the decoder's error for an unknown key, which contains a Go type.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// Scenario is a task in a folder, and the expected result.
type Scenario struct {
	Name   string            `yaml:"-"` // name of the file
	About  string            `yaml:"about"`
	Files  map[string]string `yaml:"files"`  // files of the working folder, by path
	Prompt string            `yaml:"prompt"` // task of the agent
	Answer string            `yaml:"answer"` // the owner's answer to questions of the agent
	Phased bool              `yaml:"phased"`
	Window int               `yaml:"context_window"`
	Steps  int               `yaml:"steps"`
	Calls  int               `yaml:"calls"`
	Script []Turn            `yaml:"script"`
	// Misbehaves means that the script makes mistakes on purpose, so that the scenario is not a
	// task for a real model.
	Misbehaves bool `yaml:"misbehaves"`
	Want       Want `yaml:"want"`
}

// Turn is an answer of the script.
type Turn struct {
	Say   string                      `yaml:"say"`
	Calls []map[string]map[string]any `yaml:"calls"` // tool: arguments, one each
	Fail  string                      `yaml:"fail"`  // the server's message; the turn fails and may be retried
}

// Want is the expected final state.
type Want struct {
	Outcome string            `yaml:"outcome"`
	Files   map[string]string `yaml:"files"`  // contents of files, ignoring surrounding space
	Absent  []string          `yaml:"absent"` // files that must not exist
	Rows    map[string]string `yaml:"rows"`   // a query that returns one value, and the value
	Script  Mechanics         `yaml:"script"`
}

// Mechanics holds the expectations for the way in which the script achieves the result.
type Mechanics struct {
	Exit    domain.Exit              `yaml:"exit"`
	Says    string                   `yaml:"says"`    // words of the summary or the error
	Calls   map[domain.CallState]int `yaml:"calls"`   // number of calls with this final state
	Notices []string                 `yaml:"notices"` // words of each notice; the model must get it exactly once
	Sees    []string                 `yaml:"sees"`    // words that were in a request
}

// Builtin returns the scenarios that are part of rouse, sorted by name.
func Builtin() ([]Scenario, error) {
	names, err := fs.Glob(builtin, "scenarios/*.yaml")
	if err != nil {
		return nil, err
	}

	var out []Scenario
	for _, name := range names {
		text, err := builtin.ReadFile(name)
		if err != nil {
			return nil, err
		}

		s, err := Parse(name, text)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}

	return out, nil
}

// Parse parses a scenario. Its error contains the file, and the line if possible.
func Parse(file string, text []byte) (Scenario, error) {
	s := Scenario{Name: strings.TrimSuffix(path.Base(filepath.ToSlash(file)), path.Ext(file))}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("%s: %s", file, unknownKey.ReplaceAllString(err.Error(), "there is no key $1 here"))
	}
	if why := s.incomplete(); why != "" {
		return s, fmt.Errorf("%s: %s", file, why)
	}

	return s, nil
}

// incomplete returns the problem of an incomplete scenario, or "" if it can be run.
func (s Scenario) incomplete() string {
	switch {
	case s.Prompt == "":
		return "there is no prompt"
	case len(s.Script) == 0:
		return "there is no script; give the answers of a model that does the task"
	case s.Want.Outcome == "":
		return "want.outcome is missing"
	}

	for i, t := range s.Script {
		if slices.ContainsFunc(t.Calls, func(c map[string]map[string]any) bool { return len(c) != 1 }) {
			return fmt.Sprintf("script: a call of turn %d is not one tool with its arguments", i+1)
		}
	}

	// The folder may have been given on the command line.
	for name := range s.Files {
		if !filepath.IsLocal(name) {
			return fmt.Sprintf("files: %s leads out of the workspace", name)
		}
	}

	return ""
}
