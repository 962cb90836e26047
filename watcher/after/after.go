package after

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rouse/internal/ledger/claim"
	"rouse/internal/nofollow"
	"rouse/watcher/fsys"
)

// What happens to a file after its run.
const (
	Leave  = "leave"
	Move   = "move"
	Delete = "delete"
)

// Rule is what happens to a file after its run.
type Rule struct {
	Action   string // "" or leave, move, delete
	Dir      string // of move: files stay below this folder
	Template string // of move: the rest of the path; see SplitTemplate
}

// Folder is a watched folder with the rules for its files.
type Folder struct {
	Path                 string // absolute
	Boundary             nofollow.UntrustedDirs
	OnSuccess, OnFailure Rule
}

// Mover applies the rules. It does not record what it does.
type Mover struct {
	Hashes *fsys.Hashes
	// Expand expands one part of a destination template for the file of a finished run. It may be nil
	// if no rule has a template.
	Expand func(ctx context.Context, template string, c claim.Status) (string, error)
}

const changedSince = "the file has changed since its run; it stays, as a new one"

// Apply does with a file what the rules of its folder say, and says what became of it; failure, when it
// could not be done.
func (m *Mover) Apply(ctx context.Context, folder *Folder, c claim.Status) (state, dest, note string, failure error) {
	rule := folder.OnFailure
	if c.Outcome.Done() {
		rule = folder.OnSuccess
	}

	g, err := openRoots(folder)
	switch {
	case err != nil && c.Outcome == "":
		return claim.AfterNone, c.Dest, "", nil // its run says what is wrong with the folder
	case err != nil:
		return claim.AfterFailed, "", err.Error(), err
	}
	defer g.close()

	if c.Outcome == "" {
		return claim.AfterNone, m.placeOf(ctx, g, c), "", nil
	}

	if rule.Action == "" || rule.Action == Leave || !g.contains(filepath.FromSlash(c.Path)) {
		return claim.AfterLeft, "", "", nil // a file that its owner named, from another folder, stays there
	}

	// A file that is gone has been dealt with: by somebody else, or by a delete that a crash
	// kept from being recorded.
	file, st, err := m.locate(ctx, g, c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return claim.AfterDone, "", "the file was gone", nil
	case err == nil && rule.Action == Delete:
		err = deleteFile(file, st, file.Sibling(deletingName(c)))
	case err == nil:
		dest, err = m.moveTo(ctx, g, c, file, st, rule)
	}

	switch {
	case errors.Is(err, fsys.ErrChanged):
		// Other bytes are another file, which gets a run of its own.
		return claim.AfterDone, "", changedSince, nil
	case err != nil:
		return claim.AfterFailed, "", err.Error(), err
	}

	return claim.AfterDone, dest, "", nil
}

// placeOf is where the file of a run lies that was retried before it was recorded what became of it: "" when it is still
// at its path, or nowhere.
func (m *Mover) placeOf(ctx context.Context, g *allowedRoots, c claim.Status) string {
	path := filepath.FromSlash(c.Path)
	if !g.contains(path) {
		return c.Dest
	}

	file, _, err := m.locate(ctx, g, c)
	if err != nil || file.Path() == path {
		return ""
	}
	return file.Path()
}

// deletingName is the name that a file has while it is deleted. It is hidden, so that no scan
// takes the file for a new one.
func deletingName(c claim.Status) string { return fmt.Sprintf(".deleting-%d", c.ID) }

// moveTo moves a file into a folder, and says where it lies then. Where the same content came before and still lies
// there, the second one is removed: what is put back again and again fills no folder with copies.
func (m *Mover) moveTo(ctx context.Context, g *allowedRoots, c claim.Status, file fsys.Handle, st fsys.Stamp, rule Rule) (string, error) {
	to, name, err := m.destination(ctx, rule, c)
	if err != nil {
		return "", err
	}
	dir, err := g.openDestination(rule.Dir, to, true)
	if err != nil {
		if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
			return "", fmt.Errorf("cannot move the file to %s: %w", filepath.Join(rule.Dir, to), err)
		}
		return "", fmt.Errorf("the folder %s cannot be created, or a link leads out of the watched folder: %w", filepath.Join(rule.Dir, to), err)
	}
	if filepath.Dir(file.Path()) == dir.Name() {
		return file.Path(), nil // it was moved there after an earlier try
	}

	if c.Dest != "" && filepath.Dir(c.Dest) == dir.Name() {
		if _, err := m.stampOfClaimed(ctx, fsys.Handle{Root: dir, Name: filepath.Base(c.Dest)}, c); err == nil {
			return c.Dest, deleteFile(file, st, file.Sibling(deletingName(c)))
		}
	}
	return m.move(ctx, file, st, dir, name)
}

// locate finds the content of a claim: at its path or, when its run was retried, where the
// action after the earlier try put it. The error is ErrChanged when there is other content at
// the path, and the claimed one is nowhere.
func (m *Mover) locate(ctx context.Context, g *allowedRoots, c claim.Status) (fsys.Handle, fsys.Stamp, error) {
	path := filepath.FromSlash(c.Path)
	missing := fs.ErrNotExist
	places := []string{path, c.Dest, filepath.Join(filepath.Dir(path), deletingName(c))}
	for _, place := range places {
		if place == "" {
			continue
		}

		file, err := g.handle(place)
		var st fsys.Stamp
		if err == nil {
			st, err = m.stampOfClaimed(ctx, file, c)
		}

		switch {
		case errors.Is(err, fsys.ErrChanged):
			missing = err
		case !fsys.IsNotExist(err):
			return file, st, err
		}
	}

	// A crash between a move and its record leaves no destination in the claim.
	for _, rule := range []Rule{g.folder.OnFailure, g.folder.OnSuccess} {
		if rule.Action == Move && c.Dest == "" {
			if file, st, err := m.findUnrecordedMove(ctx, g, rule, c); err == nil {
				return file, st, nil
			}
		}
	}

	return fsys.Handle{}, fsys.Stamp{}, missing
}

// stampOfClaimed is the stamp of a file that still has the claimed content; ErrChanged when it
// has another.
func (m *Mover) stampOfClaimed(ctx context.Context, file fsys.Handle, c claim.Status) (fsys.Stamp, error) {
	info, err := file.Lstat()
	if err != nil {
		return fsys.Stamp{}, err
	}

	st := fsys.StampOf(info)
	if st.Size != c.Size {
		return st, fsys.ErrChanged // without reading it
	}

	hash, err := m.Hashes.Of(ctx, file, st)
	if err == nil && hash != c.Hash {
		err = fsys.ErrChanged
	}

	return st, err
}

// findUnrecordedMove looks for a file where a move would have put it whose record was lost.
func (m *Mover) findUnrecordedMove(ctx context.Context, g *allowedRoots, rule Rule, c claim.Status) (fsys.Handle, fsys.Stamp, error) {
	to, name, err := m.destination(ctx, rule, c)
	if err != nil {
		return fsys.Handle{}, fsys.Stamp{}, err
	}
	root, err := g.openDestination(rule.Dir, to, false)
	if err != nil {
		return fsys.Handle{}, fsys.Stamp{}, err
	}

	// The first free name ends the search: the move would have used it.
	for i := range 100 {
		file := fsys.Handle{Root: root, Name: numbered(name, i)}
		st, err := m.stampOfClaimed(ctx, file, c)
		if !errors.Is(err, fsys.ErrChanged) {
			return file, st, err
		}
	}

	return fsys.Handle{}, fsys.Stamp{}, fs.ErrNotExist
}
