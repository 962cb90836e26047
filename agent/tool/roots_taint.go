package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rouse/internal/ledger/label"
)

// Distrust names folders in which strangers leave files. What is read there, names included, is
// untrusted. Links to the folders must be resolved (see WithResolvedLinks).
func (r *Roots) Distrust(folders ...string) { r.untrusted = folders }

// KeepPrivate names folders whose content is for its owner alone, but for the file that started the
// run. For links see Distrust.
func (r *Roots) KeepPrivate(folders ...string) { r.private = folders }

// OnWrite sets the function that is called with each file that a tool writes, before it gets its
// name.
func (r *Roots) OnWrite(record func(context.Context, label.Place) error) { r.onWrite = record }

// ProgramNeed returns the need of a program that is confined to the roots: it can read all of them,
// and write where the run may write.
func (r *Roots) ProgramNeed() (n Access) {
	above := map[string][]label.FileID{} // of folders: a batch has a thousand files in few of them
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
		n.Reads = append(n.Reads, label.Place{Kind: label.PlaceFile, Name: g.Path, ID: fileID(g.Path), Above: above[folder]})
	}

	n.Writes = r.Writable()
	return n
}

// Writable lists the folders and files where the run may write.
func (r *Roots) Writable() (out []label.Place) {
	for _, g := range r.roots {
		if g.Write {
			out = append(out, PlaceOf(g.Path))
		}
	}
	return out
}

// taintOf returns the labels of a path according to its owner.
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

// ReadNeed returns the need of a call that reads a file, or lists or searches a folder.
func (r *Roots) ReadNeed(path string) (n Access) {
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
	n.Reads = []label.Place{PlaceOf(abs)}
	n.Bind = r.bindPath(path, false)
	return n
}

// bindPath refuses a path that no approval could make usable: one that is masked, holds secrets by
// its name, or cannot be reached. What lies there is not looked at: success would tell.
func (r *Roots) bindPath(path string, write bool) func(Access) (Access, error) {
	return func(n Access) (Access, error) {
		p, err := r.Resolve(path, write)
		if err != nil {
			return n, err
		}
		return n, p.Close()
	}
}

// WriteNeed returns the need of a call that changes a file. It reads, too: its answer shows a part
// of the file's old content.
func (r *Roots) WriteNeed(path string) Access {
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

	// A file is replaced by a new one, which Announce records.
	if err != nil || !info.IsDir() {
		place.ID = label.FileID{}
	}
	n.Writes, n.Bind = []label.Place{place}, r.bindPath(path, true)
	return n
}

// TransferNeed returns the need of a call that moves or copies a file or folder. The new path gets
// the labels of the old one.
func (r *Roots) TransferNeed(from, to string, moves bool) Access {
	n := r.ReadNeed(from)
	_, abs := r.innermost(to, true)
	if abs == "" {
		return n // the call will be refused
	}

	place := PlaceOf(abs)
	place.ID = label.FileID{} // the call replaces this file; AnnounceAs records the new one
	n.Writes = []label.Place{place}
	source, target := r.bindPath(from, moves), r.bindPath(to, true)
	n.Bind = func(n Access) (Access, error) {
		if _, err := source(n); err != nil {
			return n, err
		}
		return target(n)
	}
	return n
}

// RemoveNeed returns the need of a call that deletes a file or folder without reading it.
func (r *Roots) RemoveNeed(path string) Access { return Access{Bind: r.bindPath(path, true)} }

// HasBelow reports whether an absolute path is a granted path or contains one.
func (r *Roots) HasBelow(abs string) bool {
	return slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(abs, g.Path)
		_, named := below(abs, g.named)
		return (in || named) && !g.File
	})
}

// PlaceOf names a path, which may not exist yet, for the labels on record.
func PlaceOf(abs string) label.Place {
	name := resolveExisting(abs)
	return label.Place{Kind: label.PlaceFile, Name: name, ID: fileID(name), Above: idsFrom(filepath.Dir(name))}
}

// idsFrom are the identities of a folder and of those that it lies in.
func idsFrom(folder string) (out []label.FileID) {
	for ; ; folder = filepath.Dir(folder) {
		if out = append(out, fileID(folder)); folder == filepath.Dir(folder) {
			return out
		}
	}
}

// overlapsAny reports whether a path is in one of some folders, or above one.
func overlapsAny(folders []string, abs string) bool {
	return slices.ContainsFunc(folders, func(d string) bool {
		_, in := below(d, abs)
		_, holds := below(abs, d)
		return in || holds
	})
}

// PathNeeds returns the Needs of a tool that reads the file of its argument path, or changes it.
func (r *Roots) PathNeeds(writes bool) AccessFunc {
	return func(_ context.Context, _ Invocation, args json.RawMessage) (Access, error) {
		var a struct {
			Path string `json:"path"`
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return Access{}, nil //nolint:nilerr // the call itself says what is wrong with them
		}

		path := filepath.Clean(a.Path)
		if writes {
			return r.WriteNeed(path), nil
		}
		return r.ReadNeed(path), nil
	}
}
