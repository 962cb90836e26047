package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/fspath"
)

// Where formats a position for messages of runs, relative to the folder of the main file.
func (c *Config) Where(at Position) string {
	if rel, ok := fspath.Rel(filepath.Dir(c.Files[0]), at.File); ok {
		at.File = filepath.ToSlash(rel)
	}
	return at.String()
}

// Position is a position in a configuration file.
type Position struct {
	File   string
	Line   int
	Column int
}

func (p Position) String() string { return fmt.Sprintf("%s:%d", Display(p.File), p.Line) }

// MarshalJSON implements json.Marshaler. It returns null, so that Compare ignores positions.
func (p Position) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// Problem is an error or warning about a configuration.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`           // jobs[1].watch.path
	Name    string `json:"name,omitempty"` // job, agent, model or channel that contains Path
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning"`
}

func (p Problem) String() string {
	place := Display(p.File)
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

// Display shortens a path below the working directory for messages.
func Display(path string) string {
	here, err := os.Getwd()
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	return fspath.Shorten(here, path)
}

// Errors is an error that holds all problems of a configuration.
type Errors struct{ Problems []Problem }

func (e *Errors) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}
