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

// Distrust sets the folders in which strangers leave files. Their content and file names are
// untrusted. Links in the paths must be resolved, see WithResolvedLinks.
func (r *Roots) Distrust(folders ...string) { r.untrusted = folders }

// KeepPrivate sets the folders with private content. Untrusted grants in them, such as the file
// that started the run, are not private. Links in the paths must be resolved, see
// WithResolvedLinks.
func (r *Roots) KeepPrivate(folders ...string) { r.private = folders }

// OnWrite sets the function that is called with each written file before the file gets its name.
func (r *Roots) OnWrite(record func(context.Context, label.Place) error) { r.onWrite = record }

// ProgramNeed returns the Access of a program that is confined to the roots. It can read all roots
// and write to the writable ones.
func (r *Roots) ProgramNeed() (n Access) {
	above := map[string][]label.FileID{} // by folder; a batch has many files in few folders
	for _, g := range r.roots {
		t := r.taintOf(g.Grant, g.Path)
		if n.AddsTaint |= t; t&Private != 0 && n.NotPrivate == "" {
			n.NotPrivate = r.notPrivate(g.Grant)
		}
		if g.OmitFromMessages { // skills, which tools cannot change
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

// Writable returns the folders and files that the run may write.
func (r *Roots) Writable() (out []label.Place) {
	for _, g := range r.roots {
		if g.Write {
			out = append(out, PlaceOf(g.Path))
		}
	}
	return out
}

// taintOf returns the labels of a path that follow from the configuration.
func (r *Roots) taintOf(g Grant, abs string) (t Taint) {
	if g.Private || !g.Untrusted && overlapsAny(r.private, abs) {
		t |= Private
	}
	if g.Untrusted || overlapsAny(r.untrusted, abs) {
		t |= Untrusted
	}
	return t
}

// notPrivate returns the setting that declares the files of a grant not private.
func (r *Roots) notPrivate(g Grant) string {
	if g.Private {
		return fmt.Sprintf("grants: {read: [{path: %q, private: false}]}", g.Path)
	}
	return "private: {workdir: false}"
}

// ReadNeed returns the Access of a call that reads a file, or lists or searches a folder.
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

// bindPath returns a Bind function that refuses a path if an approval could not make it usable: a
// masked path, a secret, or a path that cannot be reached. It does not inspect the file itself,
// because the result would reveal whether the file exists.
func (r *Roots) bindPath(path string, write bool) func(Access) (Access, error) {
	return func(n Access) (Access, error) {
		p, err := r.Resolve(path, write)
		if err != nil {
			return n, err
		}
		return n, p.Close()
	}
}

// WriteNeed returns the Access of a call that changes a file. The call also reads, because its
// answer shows a part of the old content.
func (r *Roots) WriteNeed(path string) Access {
	n := r.ReadNeed(path)
	_, abs := r.innermost(path, true)
	if abs == "" {
		return n // the call will be refused
	}

	place := PlaceOf(abs)
	info, err := os.Lstat(abs)
	if os.IsNotExist(err) {
		n.AddsTaint, n.Reads = n.AddsTaint&^Private, nil // a new file has no old content
	}

	// The call replaces the file with a new one, which Announce records.
	if err != nil || !info.IsDir() {
		place.ID = label.FileID{}
	}
	n.Writes, n.Bind = []label.Place{place}, r.bindPath(path, true)
	return n
}

// TransferNeed returns the Access of a call that moves or copies a file or folder. The new path
// gets the labels of the old one.
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

// RemoveNeed returns the Access of a call that deletes a file or folder without reading it.
func (r *Roots) RemoveNeed(path string) Access { return Access{Bind: r.bindPath(path, true)} }

// HasBelow reports whether an absolute path is a granted folder or contains one.
func (r *Roots) HasBelow(abs string) bool {
	return slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(abs, g.Path)
		_, named := below(abs, g.named)
		return (in || named) && !g.File
	})
}

// PlaceOf returns the place of a path for recorded labels. The path need not exist.
func PlaceOf(abs string) label.Place {
	name := resolveExisting(abs)
	return label.Place{Kind: label.PlaceFile, Name: name, ID: fileID(name), Above: idsFrom(filepath.Dir(name))}
}

// idsFrom returns the identities of a folder and of all its parent folders.
func idsFrom(folder string) (out []label.FileID) {
	for ; ; folder = filepath.Dir(folder) {
		if out = append(out, fileID(folder)); folder == filepath.Dir(folder) {
			return out
		}
	}
}

// overlapsAny reports whether a path lies in one of the folders or contains one.
func overlapsAny(folders []string, abs string) bool {
	return slices.ContainsFunc(folders, func(d string) bool {
		_, in := below(d, abs)
		_, holds := below(abs, d)
		return in || holds
	})
}

// PathNeeds returns the Access function of a tool that reads the file named by its argument path.
// If writes is set, the tool changes the file.
func (r *Roots) PathNeeds(writes bool) AccessFunc {
	return func(_ context.Context, _ Invocation, args json.RawMessage) (Access, error) {
		var a struct {
			Path string `json:"path"`
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return Access{}, nil //nolint:nilerr // the call itself reports the error
		}

		path := filepath.Clean(a.Path)
		if writes {
			return r.WriteNeed(path), nil
		}
		return r.ReadNeed(path), nil
	}
}
