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

// The actions on a file after its run.
const (
	Leave  = "leave"
	Move   = "move"
	Delete = "delete"
)

// Rule describes the action on a file after its run.
type Rule struct {
	Action   string // "", leave, move or delete
	Dir      string // for move: files stay below this folder
	Template string // for move: the rest of the path; see SplitTemplate
}

// Folder is a watched folder with the rules for its files.
type Folder struct {
	Path                 string // absolute
	Boundary             nofollow.UntrustedDirs
	OnSuccess, OnFailure Rule
}

// Mover applies the rules. It does not record the results.
type Mover struct {
	Hashes *fsys.Hashes
	// Expand expands one part of a destination template for the file of a finished run. Optional if
	// no rule has a template.
	Expand func(ctx context.Context, template string, c claim.Status) (string, error)
}

const changedSince = "the file has changed since its run; it stays, as a new one"

// Apply applies the rules of a folder to a file. It returns the new state of the claim, the new
// path of the file, and a note for the record. failure is the error if the rule could not be
// applied.
func (m *Mover) Apply(ctx context.Context, folder *Folder, c claim.Status) (state, dest, note string, failure error) {
	rule := folder.OnFailure
	if c.Outcome.Done() {
		rule = folder.OnSuccess
	}

	g, err := openRoots(folder)
	switch {
	case err != nil && c.Outcome == "":
		return claim.AfterNone, c.Dest, "", nil // the run reports the problem of the folder
	case err != nil:
		return claim.AfterFailed, "", err.Error(), err
	}
	defer g.close()

	if c.Outcome == "" {
		return claim.AfterNone, m.placeOf(ctx, g, c), "", nil
	}

	if rule.Action == "" || rule.Action == Leave || !g.contains(filepath.FromSlash(c.Path)) {
		return claim.AfterLeft, "", "", nil // a file that its owner named from another folder stays there
	}

	// A missing file needs no action. Another program removed it, or it was deleted before a crash
	// prevented the record.
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
		// A file with other content gets its own run.
		return claim.AfterDone, "", changedSince, nil
	case err != nil:
		return claim.AfterFailed, "", err.Error(), err
	}

	return claim.AfterDone, dest, "", nil
}

// placeOf returns the path of a file with a run that was retried before the action on the file was
// recorded. It returns "" if the file is still at its original path, or missing.
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

// deletingName returns the name of a file while it is being deleted. The name is hidden, so that a
// scan does not find a new file.
func deletingName(c claim.Status) string { return fmt.Sprintf(".deleting-%d", c.ID) }

// moveTo moves a file into a folder and returns its new path. If a file with the same content was
// moved there before and still exists, the new file is removed instead. Otherwise a file that is
// put back repeatedly would fill the folder with copies.
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
		return file.Path(), nil // an earlier try has moved it
	}

	if c.Dest != "" && filepath.Dir(c.Dest) == dir.Name() {
		if _, err := m.stampOfClaimed(ctx, fsys.Handle{Root: dir, Name: filepath.Base(c.Dest)}, c); err == nil {
			return c.Dest, deleteFile(file, st, file.Sibling(deletingName(c)))
		}
	}
	return m.move(ctx, file, st, dir, name)
}

// locate finds the content of a claim: at its path or, if its run was retried, at the destination
// of the earlier action. It returns ErrChanged if the path has other content and the claimed
// content was not found.
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

	// A crash between a move and its record leaves the claim without a destination.
	for _, rule := range []Rule{g.folder.OnFailure, g.folder.OnSuccess} {
		if rule.Action == Move && c.Dest == "" {
			if file, st, err := m.findUnrecordedMove(ctx, g, rule, c); err == nil {
				return file, st, nil
			}
		}
	}

	return fsys.Handle{}, fsys.Stamp{}, missing
}

// stampOfClaimed returns the stamp of a file with the claimed content. It returns ErrChanged if the
// content differs.
func (m *Mover) stampOfClaimed(ctx context.Context, file fsys.Handle, c claim.Status) (fsys.Stamp, error) {
	info, err := file.Lstat()
	if err != nil {
		return fsys.Stamp{}, err
	}

	st := fsys.StampOf(info)
	if st.Size != c.Size {
		return st, fsys.ErrChanged // no need to read it
	}

	hash, err := m.Hashes.Of(ctx, file, st)
	if err == nil && hash != c.Hash {
		err = fsys.ErrChanged
	}

	return st, err
}

// findUnrecordedMove searches for a file at the destination of a move that was not recorded.
func (m *Mover) findUnrecordedMove(ctx context.Context, g *allowedRoots, rule Rule, c claim.Status) (fsys.Handle, fsys.Stamp, error) {
	to, name, err := m.destination(ctx, rule, c)
	if err != nil {
		return fsys.Handle{}, fsys.Stamp{}, err
	}
	root, err := g.openDestination(rule.Dir, to, false)
	if err != nil {
		return fsys.Handle{}, fsys.Stamp{}, err
	}

	// The first free name ends the search, because the move would have used it.
	for i := range 100 {
		file := fsys.Handle{Root: root, Name: numbered(name, i)}
		st, err := m.stampOfClaimed(ctx, file, c)
		if !errors.Is(err, fsys.ErrChanged) {
			return file, st, err
		}
	}

	return fsys.Handle{}, fsys.Stamp{}, fs.ErrNotExist
}
