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

// unknownKey matches how the decoder reports an unknown key, which names a Go type.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// Scenario is a task in a folder, and the expected result.
type Scenario struct {
	Name   string            `yaml:"-"` // of its file
	About  string            `yaml:"about"`
	Files  map[string]string `yaml:"files"`  // in the working folder, by path
	Prompt string            `yaml:"prompt"` // what the agent is to do
	Answer string            `yaml:"answer"` // what its owner says when it asks
	Phased bool              `yaml:"phased"`
	Window int               `yaml:"context_window"`
	Steps  int               `yaml:"steps"`
	Calls  int               `yaml:"calls"`
	Script []Turn            `yaml:"script"`
	// Misbehaves says that the script does what a model should not, so that the scenario is no task
	// for a real one.
	Misbehaves bool `yaml:"misbehaves"`
	Want       Want `yaml:"want"`
}

// Turn is an answer of the script.
type Turn struct {
	Say   string                      `yaml:"say"`
	Calls []map[string]map[string]any `yaml:"calls"` // tool: arguments, one each
	Fail  string                      `yaml:"fail"`  // the server's message; the turn fails and may be retried
}

// Want is the expected state in the end.
type Want struct {
	Outcome string            `yaml:"outcome"`
	Files   map[string]string `yaml:"files"`  // their contents, ignoring surrounding space
	Absent  []string          `yaml:"absent"` // files that must not exist
	Rows    map[string]string `yaml:"rows"`   // a query that gives one value, and the value
	Script  Mechanics         `yaml:"script"`
}

// Mechanics are how the script is expected to get there.
type Mechanics struct {
	Exit    domain.Exit              `yaml:"exit"`
	Says    string                   `yaml:"says"`    // words of the summary or the error
	Calls   map[domain.CallState]int `yaml:"calls"`   // how many ended in each of these states
	Notices []string                 `yaml:"notices"` // words of each; the model must get it exactly once
	Sees    []string                 `yaml:"sees"`    // words that were in a request
}

// Builtin are the scenarios that come with rouse, by their names.
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

// Parse reads a scenario. The error names the file, and the line where it can.
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

// incomplete says what a scenario lacks, "" when it can be run.
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

	// The folder may be one that a person named on the command line.
	for name := range s.Files {
		if !filepath.IsLocal(name) {
			return fmt.Sprintf("files: %s leads out of the workspace", name)
		}
	}

	return ""
}
