package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/redact"
	"rouse/internal/fspath"
)

// Position is where something stands.
type Position struct {
	File   string
	Line   int
	Column int
}

func (p Position) String() string { return fmt.Sprintf("%s:%d", display(p.File), p.Line) }

// MarshalJSON implements json.Marshaler: Compare takes two settings at different places as equal.
func (p Position) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// Problem is one thing that is wrong.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`           // jobs[1].watch.path
	Name    string `json:"name,omitempty"` // of the job, agent, model or channel that Path is in
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning"`
}

func (p Problem) String() string {
	place := display(p.File)
	if p.Line > 0 {
		place += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	message := p.Message
	if p.Warning {
		message = "warning: " + message
	}
	if p.Hint != "" {
		message += "; " + p.Hint
	}
	parts := []string{place, p.Name, p.Path, message}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// display shortens a path below the working folder for people.
func display(path string) string {
	here, err := os.Getwd()
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	return fspath.Shorten(here, path)
}

// Errors are all the problems of a configuration.
type Errors struct{ Problems []Problem }

func (e *Errors) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// verdict orders the problems by place, and parts the warnings from the errors.
func (d *decoder) verdict(cfg *Config) error {
	seen := map[Problem]bool{}
	var wrong, doubtful []Problem
	hide := d.masker()
	for _, p := range d.problems {
		p.Path, p.Message, p.Hint, p.Name = hide.Replace(p.Path), hide.Replace(p.Message), hide.Replace(p.Hint), hide.Replace(d.nameAt(p.Path))
		key := Problem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message}
		if seen[key] {
			continue // what many jobs have of defaults: or of an alias is wrong once
		}

		if seen[key] = true; p.Warning {
			doubtful = append(doubtful, p)
		} else {
			wrong = append(wrong, p)
		}
	}

	order := func(a, b Problem) int {
		return cmp.Or(slices.Index(cfg.Files, a.File)-slices.Index(cfg.Files, b.File), a.Line-b.Line, a.Column-b.Column,
			strings.Compare(a.File, b.File), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	}
	// Maps are walked on the way here, so the order in which problems were found says nothing.
	slices.SortStableFunc(wrong, order)
	slices.SortStableFunc(doubtful, order)
	cfg.Warnings = doubtful
	if len(d.problems) > maxProblems {
		wrong = append(wrong, Problem{File: cfg.Files[0], Line: 1, Column: 1, Message: fmt.Sprintf("there are more than %d problems; the rest is not listed", maxProblems)})
	}
	if len(wrong) == 0 {
		return nil
	}

	return &Errors{wrong}
}

// masker returns what keeps secrets out of problems, which quote values, also after they were shortened.
func (d *decoder) masker() *redact.Redactor {
	secrets := slices.Clone(d.secrets)
	for _, s := range d.secrets {
		if start, cut := strings.CutSuffix(short(s), "…"); cut {
			secrets = append(secrets, start)
		}
	}
	return redact.New(secrets)
}

// listed matches the item of a list that a path leads into.
var listed = regexp.MustCompile(`^((models|agents|mcp|jobs|notifications)\[\d+\])(?:\.|$)`)

// nameAt returns the name of the item that a path leads into, or "".
func (d *decoder) nameAt(path string) string {
	m := listed.FindStringSubmatch(path)
	// A problem of the name itself: repeating the wrong name in front of it would not help.
	if m == nil || path == m[1]+".name" || d.root == nil {
		return ""
	}
	n, found := d.root.find(m[1] + ".name")
	if !found || n.kind != scalar || !nameForm.MatchString(n.text) {
		return ""
	}
	return n.text
}
