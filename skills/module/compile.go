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

// What one compilation may take.
const (
	maxCompile    = 10 * time.Second
	compileMemory = 512 << 20 // bytes
)

// Program is a compiled module. It is immutable.
type Program struct {
	compiled
	hash string // of the sources
}

// Exports are the names that module.ts exports, sorted: execute and the hooks (OSL-06).
func (p *Program) Exports() []string { return slices.Clone(p.compiled.Exports) }

// SyntaxError is what is wrong with the text of a module, or with one of its imports.
type SyntaxError struct {
	File         string // below the folder of the skill
	Line, Column int    // from 1; 0 where it has none
	Text         string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Compile compiles the module.ts of a folder with what it imports, which is looked for in that folder alone:
// links, packages and paths that lead out of it are refused (OSL-02). Types are removed and not checked. What is wrong
// with the text is a [*SyntaxError], what hinders the host any other error.
//
// Texts that were compiled before are not compiled again (see [Machine.Compile]).
func Compile(ctx context.Context, dir string) (*Program, error) {
	at, src, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	return compile(ctx, at, src, src.hash())
}

// readFolder reads the sources of a folder, and says where it really is.
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

// errNotCompiled is of texts that end whoever compiles them.
var errNotCompiled = errors.New("it, or what it imports, is nested too deeply to be compiled, or needs too much memory or time for that")

// compileInChild compiles in a process of its own. It is bounded and not confined, so that it works on every machine: what it
// reads are texts that were read before, and esbuild is Go, which a hostile text can stop but not take over.
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
	case r.Compiled == nil: // what became of it is too large to be sent
		return nil, errNotCompiled
	}

	return r.Compiled, nil
}

// maxStack bounds the calls that are shown.
const maxStack = 30

// frame is a call in a stack of QuickJS: "    at name (file:line:column)", of which the column may be missing.
var frame = regexp.MustCompile(`^\s*at (?:(.*) \()?([^():]+):(\d+)(?::(\d+))?\)?$`)

// stack is a stack of the machine by the lines of the sources. Calls of what is not the module's own are left out.
func (p *Program) stack(text string) string {
	if text == "" {
		return ""
	}

	lines, err := sourcemap.Parse("", []byte(p.Map))
	if err != nil {
		return "" // it was made by esbuild: there is nothing to show without it
	}

	var out []string
	for call := range strings.Lines(text) {
		m := frame.FindStringSubmatch(strings.TrimSpace(call))
		if m == nil || m[2] != moduleName || len(out) == maxStack {
			continue
		}

		line, _ := strconv.Atoi(m[3]) // digits
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
