package module

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sourcemap/sourcemap"

	"rouse/agent/sandbox"
)

// Limits of a compilation.
const (
	maxCompile    = 10 * time.Second
	compileMemory = 512 << 20 // in bytes
)

// Program is a compiled module. It is immutable.
type Program struct {
	compiled
	hash string // of the sources
}

// Exports returns the sorted names that module.ts exports: execute and lifecycle hooks.
func (p *Program) Exports() []string { return slices.Clone(p.compiled.Exports) }

// SyntaxError is an error in the source of a module or one of its imports.
type SyntaxError struct {
	File         string // path relative to the skill's folder
	Line, Column int    // from 1; 0 if unknown
	Text         string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Compile compiles the module.ts in dir with its imports. Imports must be files in dir: links,
// packages and paths outside of dir are rejected. Types are removed without being checked. Compile
// returns a [*SyntaxError] for an error in the source and other errors for problems of the host.
//
// Compile does not cache the result. [Machine.Compile] does.
func Compile(ctx context.Context, dir string) (*Program, error) {
	at, src, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	return compile(ctx, at, src, src.hash())
}

// readFolder reads the sources in dir and returns its resolved path.
func readFolder(dir string) (at string, src *sources, err error) {
	if at, err = filepath.Abs(dir); err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return "", nil, fmt.Errorf("the folder of a module cannot be found: %w", err)
	}

	src, err = readSources(at)
	return at, src, err
}

func compile(ctx context.Context, dir string, src *sources, hash string) (*Program, error) {
	if len(src.Files) == 0 && len(src.Large) == 0 {
		return nil, &SyntaxError{File: EntryFile, Text: "there is no " + EntryFile}
	}

	c, err := compileInChild(ctx, src)
	switch {
	case errors.Is(err, errNotCompiled):
		return nil, &SyntaxError{File: EntryFile, Text: err.Error()}
	case err != nil:
		return nil, fmt.Errorf("%s in %s cannot be compiled: %w", EntryFile, dir, err)
	case c.Syntax != nil:
		return nil, c.Syntax
	}

	return &Program{compiled: *c, hash: hash}, nil
}

// errNotCompiled is returned if the source makes the compiler crash or exceed its limits.
var errNotCompiled = errors.New("it, or what it imports, is nested too deeply to be compiled, or needs too much memory or time for that")

// compileInChild compiles sources in a separate process with limits on time and memory. The process
// is not sandboxed, so compilation works on every system. This is safe, because it only processes
// text that was already read. Hostile text can crash esbuild but not take it over, because esbuild
// is written in Go.
func compileInChild(ctx context.Context, src *sources) (_ *compiled, err error) {
	s, err := sandbox.New(sandbox.Options{OffReason: "the compiler is given texts alone"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	p, err := startProcess(ctx, s, "", "", compileMemory)
	if err != nil {
		return nil, err
	}
	defer p.close()

	r, err := p.ask(ctx, request{Compile: src}, maxCompile)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w (%w)", errNotCompiled, p.lost(err))
	case r.Broken != "":
		return nil, fmt.Errorf("its process failed: %s", r.Broken)
	case r.Compiled == nil: // the result is too large to send
		return nil, errNotCompiled
	}

	return r.Compiled, nil
}

// maxStack is the maximum number of calls in a stack.
const maxStack = 30

// frame matches a call in a QuickJS stack: "    at name (file:line:column)". The column is
// optional.
var frame = regexp.MustCompile(`^\s*at (?:(.*) \()?([^():]+):(\d+)(?::(\d+))?\)?$`)

// stack translates a QuickJS stack to lines of the source files. It omits calls outside of the
// module.
func (p *Program) stack(text string) string {
	if text == "" {
		return ""
	}

	lines, err := sourcemap.Parse("", []byte(p.Map))
	if err != nil {
		return "" // without a source map there are no lines to show
	}

	var out []string
	for call := range strings.Lines(text) {
		m := frame.FindStringSubmatch(strings.TrimSpace(call))
		if m == nil || m[2] != moduleName || len(out) == maxStack {
			continue
		}

		line, _ := strconv.Atoi(m[3]) // always digits
		column, _ := strconv.Atoi(m[4])
		file, _, at, col, ok := lines.Source(line, max(column-1, 0))
		if !ok {
			continue
		}

		name := m[1]
		if name == "" {
			name = "<anonymous>"
		}
		out = append(out, fmt.Sprintf("    at %s (%s:%d:%d)", name, strings.TrimPrefix(file, namespace+":"), at, col+1))
	}

	return strings.Join(out, "\n")
}
