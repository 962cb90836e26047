package tool

import (
	"context"
	"encoding/json"
	"path/filepath"
)

// SetMemoryTaint sets how to ask for the taint of what earlier runs of the agent wrote: in its database,
// and where it may write. Without it there is none.
func (r *Roots) SetMemoryTaint(labels func(context.Context) (Taint, error)) { r.memoryTaint = labels }

// Distrust names folders in which strangers leave files, wherever they lie. What is read there,
// names included, is untrusted; it grants nothing. A link to such a folder is no name of it: see
// WithResolvedLinks.
func (r *Roots) Distrust(folders ...string) { r.untrusted = folders }

// MemoryTaint is the taint of what earlier runs of the agent wrote.
func (r *Roots) MemoryTaint(ctx context.Context) (Taint, error) {
	if r.memoryTaint == nil {
		return 0, nil
	}
	return r.memoryTaint(ctx)
}

// Taint is the taint of all that lies in the roots together: a program can read any of it.
func (r *Roots) Taint(ctx context.Context) (Taint, error) {
	labels, err := r.MemoryTaint(ctx)
	for _, g := range r.roots {
		if g.Private {
			labels |= Private
		}
		if g.Untrusted || r.overlapsUntrusted(g.Path) {
			labels |= Untrusted
		}
	}

	return labels, err
}

// ReadNeed is the need of a call that reads a file, or lists a folder.
func (r *Roots) ReadNeed(ctx context.Context, path string) (n Need, err error) {
	if path == "" {
		path = "."
	}

	g, abs := r.innermost(path, false)
	if g == nil {
		return n, nil // the call will be refused
	}

	if g.Private {
		n.AddsTaint |= Private
	}

	if g.Untrusted || r.overlapsUntrusted(abs) {
		n.AddsTaint |= Untrusted
	}

	// What the agent can write, earlier runs may have written: it is as tainted as they were.
	if _, own := below(r.workdir, abs); own || g.Write {
		memory, err := r.MemoryTaint(ctx)
		n.AddsTaint |= memory
		return n, err
	}

	return n, nil
}

// overlapsUntrusted reports whether a path is in a folder of strangers' files, or above one: a
// search from there reads those files, too.
func (r *Roots) overlapsUntrusted(abs string) bool {
	for _, d := range r.untrusted {
		if _, in := below(d, abs); in {
			return true
		}
		if _, holds := below(abs, d); holds {
			return true
		}
	}
	return false
}

// PathNeeds makes the Needs of a tool that reads the file of its argument path, or with writes
// changes it.
func (r *Roots) PathNeeds(writes bool) func(context.Context, Invocation, json.RawMessage) (Need, error) {
	return func(ctx context.Context, _ Invocation, args json.RawMessage) (Need, error) {
		var a struct {
			Path string `json:"path"`
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return Need{}, nil //nolint:nilerr // the call itself says what is wrong with them
		}

		// A change reads, too: its answer shows a part of what the file held.
		n, err := r.ReadNeed(ctx, filepath.Clean(a.Path))
		n.WritesMemory = writes
		return n, err
	}
}
