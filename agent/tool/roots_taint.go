package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rouse/agentdb/ledger"
)

// Distrust names folders in which strangers leave files, wherever they lie. What is read there,
// names included, is untrusted; it grants nothing. A link to such a folder is no name of it: see
// WithResolvedLinks.
func (r *Roots) Distrust(folders ...string) { r.untrusted = folders }

// KeepPrivate names folders in which everything is for its owner alone, the workdir among them or not. What
// started the run is not: it came from outside. For links see Distrust.
func (r *Roots) KeepPrivate(folders ...string) { r.private = folders }

// OnWrite sets what is called with each file that a tool writes, by its path and identity, before it gets
// its name.
func (r *Roots) OnWrite(record func(context.Context, ledger.Place) error) { r.onWrite = record }

// ProgramNeed is the need of a program that is confined to the roots: it can read all that lies there,
// and may write anything where the run may.
func (r *Roots) ProgramNeed() (n Need) {
	above := map[string][]ledger.FileID{} // of folders: a batch has a thousand files in few of them
	for _, g := range r.roots {
		t := r.taintOf(g.Grant, g.Path)
		if n.AddsTaint |= t; t&Private != 0 && n.NotPrivate == "" {
			n.NotPrivate = r.notPrivate(g.Grant)
		}
		if g.OmitFromMessages { // skills, which no tool changes
			continue
		}

		folder := filepath.Dir(g.Path)
		if above[folder] == nil {
			above[folder] = idsFrom(folder)
		}
		n.Reads = append(n.Reads, ledger.Place{Kind: ledger.PlaceFile, Name: g.Path, ID: fileID(g.Path), Above: above[folder]})
	}

	n.Writes = r.Writable()
	return n
}

// Writable are the folders and files where the run may write.
func (r *Roots) Writable() (out []ledger.Place) {
	for _, g := range r.roots {
		if g.Write {
			out = append(out, PlaceOf(g.Path))
		}
	}
	return out
}

// taintOf are the labels that what lies at a path has by what its owner says of it.
func (r *Roots) taintOf(g Grant, abs string) (t Taint) {
	if g.Private || !g.Untrusted && overlapsAny(r.private, abs) {
		t |= Private
	}
	if g.Untrusted || overlapsAny(r.untrusted, abs) {
		t |= Untrusted
	}
	return t
}

// notPrivate returns the setting that makes the files of a grant not private.
func (r *Roots) notPrivate(g Grant) string {
	if g.Private {
		return fmt.Sprintf("grants: {read: [{path: %q, private: false}]}", g.Path)
	}
	return "private: {workdir: false}"
}

// ReadNeed is the need of a call that reads a file, or lists or searches a folder.
func (r *Roots) ReadNeed(path string) (n Need) {
	if path == "" {
		path = "."
	}

	g, abs := r.innermost(path, false)
	if g == nil {
		return n // the call will be refused
	}

	if n.AddsTaint = r.taintOf(g.Grant, abs); n.AddsTaint&Private != 0 {
		n.NotPrivate = r.notPrivate(g.Grant)
	}
	n.Reads = []ledger.Place{PlaceOf(abs)}
	n.Bind = r.bindPath(path, false)
	return n
}

// bindPath refuses a call with a path that no approval could make usable: one that is masked, holds secrets by its
// name, or cannot be reached. What lies there is not looked at: whether a call succeeds would tell.
func (r *Roots) bindPath(path string, write bool) func(Need) (Need, error) {
	return func(n Need) (Need, error) {
		p, err := r.Resolve(path, write)
		if bad, ok := errors.AsType[*PathError](err); ok {
			e := bad.Envelope()
			n.Refused = &e
			return n, nil
		}
		if err != nil {
			return n, err
		}
		return n, p.Close()
	}
}

// writeNeed is the need of a call that changes a file. A change reads, too: its answer shows a part of
// what the file held.
func (r *Roots) writeNeed(path string) Need {
	n := r.ReadNeed(path)
	_, abs := r.innermost(path, true)
	if abs == "" {
		return n // the call will be refused
	}

	place := PlaceOf(abs)
	info, err := os.Lstat(abs)
	if os.IsNotExist(err) {
		n.AddsTaint, n.Reads = n.AddsTaint&^Private, nil // there is nothing to be shown
	}

	// A file is replaced as a whole: the new one is another, which Announce tells of.
	if err != nil || !info.IsDir() {
		place.ID = ledger.FileID{}
	}
	n.Writes, n.Bind = []ledger.Place{place}, r.bindPath(path, true)
	return n
}

// TransferNeed returns the need of a call that moves or copies a file or folder. The new path gets the labels of the old
// one.
func (r *Roots) TransferNeed(from, to string, moves bool) Need {
	n := r.ReadNeed(from)
	_, abs := r.innermost(to, true)
	if abs == "" {
		return n // the call will be refused
	}

	place := PlaceOf(abs)
	place.ID = ledger.FileID{} // the call replaces this file; AnnounceAs records the new one
	n.Writes = []ledger.Place{place}
	source, target := r.bindPath(from, moves), r.bindPath(to, true)
	n.Bind = func(n Need) (Need, error) {
		if n, err := source(n); err != nil || n.Refused != nil {
			return n, err
		}
		return target(n)
	}
	return n
}

// RemoveNeed returns the need of a call that deletes a file or folder without reading it.
func (r *Roots) RemoveNeed(path string) Need { return Need{Bind: r.bindPath(path, true)} }

// HasBelow reports whether an absolute path is a granted path or contains one.
func (r *Roots) HasBelow(abs string) bool {
	return slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(abs, g.Path)
		_, named := below(abs, g.named)
		return (in || named) && !g.File
	})
}

// PlaceOf names a path, which may not exist yet, for the labels on record.
func PlaceOf(abs string) ledger.Place {
	name := resolveExisting(abs)
	return ledger.Place{Kind: ledger.PlaceFile, Name: name, ID: fileID(name), Above: idsFrom(filepath.Dir(name))}
}

// idsFrom are the identities of a folder and of those that it lies in.
func idsFrom(folder string) (out []ledger.FileID) {
	for ; ; folder = filepath.Dir(folder) {
		if out = append(out, fileID(folder)); folder == filepath.Dir(folder) {
			return out
		}
	}
}

// overlapsAny reports whether a path is in one of some folders, or above one: a search from there reads
// what lies in those, too.
func overlapsAny(folders []string, abs string) bool {
	for _, d := range folders {
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
	return func(_ context.Context, _ Invocation, args json.RawMessage) (Need, error) {
		var a struct {
			Path string `json:"path"`
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return Need{}, nil //nolint:nilerr // the call itself says what is wrong with them
		}

		path := filepath.Clean(a.Path)
		if writes {
			return r.writeNeed(path), nil
		}
		return r.ReadNeed(path), nil
	}
}

// recordIdentity tells OnWrite of a complete file that is about to get the name of the handle.
func (p *FileHandle) recordIdentity(ctx context.Context, temp string) error {
	if p.onWrite == nil {
		return nil
	}

	folder, err := filepath.EvalSymlinks(filepath.Join(p.Name(), filepath.Dir(p.Rel)))
	if err != nil {
		return fmt.Errorf("the folder of %s cannot be found: %w", p.shown, err)
	}

	// The temporary file lies beside the file that it becomes.
	id := fileID(filepath.Join(folder, filepath.Base(temp)))
	return p.onWrite(ctx, ledger.Place{Kind: ledger.PlaceFile, Name: filepath.Join(folder, filepath.Base(p.Rel)), ID: id})
}
