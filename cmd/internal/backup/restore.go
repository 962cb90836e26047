package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/agent/tool/shell"
	"rouse/agentdb"
	"rouse/cmd/internal/audit"
	"rouse/cmd/internal/layout"
	"rouse/internal/atomicfile"
	"rouse/internal/fspath"
	"rouse/internal/gitlayout"
	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// Checked holds the result of checking a backup.
type Checked struct {
	Path     string       `json:"path"`
	Manifest Manifest     `json:"-"`
	Bytes    int64        `json:"bytes"`
	Files    int          `json:"files"`
	Audit    audit.Result `json:"audit"`
	NotTried string       `json:"not_audited,omitempty"` // why the ledger was not audited
	Info
}

// Hear holds callbacks of a check or a restore. Each is optional.
type Hear struct {
	Progress func(done, of int64)
	Found    func(integrity.Violation) error
}

// Check verifies a backup: it compares all files with the manifest, checks the databases, and
// audits the ledger.
func Check(ctx context.Context, src string, hear Hear) (Checked, error) {
	path, err := Find(src)
	if err != nil {
		return Checked{}, err
	}

	home, m := filepath.Join(path, "home"), Manifest{}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if m, err = check(ctx, path, hear.visit(path, discard)); err != nil {
			return Checked{}, unsound(path, err)
		}
	} else {
		// Databases need random access, so an archive is unpacked first.
		temp, err := os.MkdirTemp("", "rouse-check-")
		if err != nil {
			return Checked{}, err
		}
		defer func() { _ = os.RemoveAll(temp) }() // the directory is temporary
		if m, err = unpack(ctx, path, temp, hear); err != nil {
			return Checked{}, unsound(path, err)
		}
		home = filepath.Join(temp, "home")
	}

	out := checked(path, m)
	if err := checkSchema(m); err != nil {
		return out, err
	}
	if err := checkDatabases(ctx, home, m); err != nil {
		return out, unsound(path, err)
	}
	if m.Schema < store.Schema() {
		out.NotTried = fmt.Sprintf("its ledger is of the schema %d of an older rouse; a restore brings it to %d, and audits it then", m.Schema, store.Schema())
		return out, nil
	}
	out.Audit, err = audit.Home(ctx, audit.Options{Home: home, Frozen: true, Found: hear.found})
	return out, err
}

func checked(path string, m Manifest) Checked {
	return Checked{Path: path, Manifest: m, Bytes: m.Bytes(), Files: m.Files(), Info: m.Info}
}

func (h Hear) found(v integrity.Violation) error {
	if h.Found == nil {
		return nil
	}
	return h.Found(v)
}

// visit wraps a visitor so that it reports progress.
func (h Hear) visit(path string, visit visitor) visitor {
	var done int64
	m, _ := manifestOf(path) // an archive has its manifest at the end
	of := m.Bytes()
	return func(e Entry, r io.Reader) error {
		err := visit(e, r)
		if done += e.Bytes; h.Progress != nil {
			h.Progress(done, max(of, done))
		}
		return err
	}
}

func unsound(path string, err error) error {
	if errors.As(err, new(*TargetError)) || errors.Is(err, context.Canceled) {
		return err
	}
	return refuse("the backup %s cannot be used: %v", path, err)
}

// checkSchema returns an error if the ledger belongs to a newer version of rouse.
func checkSchema(m Manifest) error {
	if m.Schema > store.Schema() {
		return refuse("it is of a newer rouse (%s): its ledger has the schema %d, and this rouse reads up to %d; use that rouse, or a newer one", text.OneLine(m.Rouse), m.Schema, store.Schema())
	}
	return nil
}

// checkDatabases verifies every database of the backup.
func checkDatabases(ctx context.Context, home string, m Manifest) error {
	for _, e := range m.Entries {
		rel, ok := strings.CutPrefix(e.Path, homePrefix)
		if !ok || e.Folder {
			continue
		}
		path := filepath.Join(home, filepath.FromSlash(rel))
		var err error
		switch {
		case rel == "ledger.db":
			err = store.Verify(ctx, path)
		// A database with a seal file was already quarantined and stays so.
		case isAgents(rel) && !hasEntry(m, e.Path+"-seal"):
			err = agentdb.Verify(ctx, path)
		}
		if err != nil {
			return fmt.Errorf("%s of it: %w", e.Path, err)
		}
	}
	if !hasEntry(m, homePrefix+"ledger.db") {
		return errors.New("it holds no ledger")
	}
	return nil
}

func isAgents(rel string) bool {
	elements := strings.Split(rel, "/")
	return len(elements) == 3 && elements[0] == "agents" && elements[2] == "db.sqlite"
}

func hasEntry(m Manifest, path string) bool {
	return slices.ContainsFunc(m.Entries, func(e Entry) bool { return e.Path == path })
}

// unpack writes a backup into a directory and compares it with the manifest. No other process may
// write to the directory.
func unpack(ctx context.Context, path, into string, hear Hear) (Manifest, error) {
	root, err := os.OpenRoot(into)
	if err != nil {
		return Manifest{}, err
	}
	defer root.Close()

	write := func(e Entry, r io.Reader) error {
		if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(e.Path)), 0o700); err != nil {
			return err
		}
		_, err := writeFile(root, e, r)
		return err
	}

	var m Manifest
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if m, err = manifestOf(path); err != nil {
			return m, err
		}
		if err := room(into, m.Bytes()); err != nil {
			return m, err
		}
		m, err = check(ctx, path, hear.visit(path, write))
		if err != nil {
			return m, err
		}
	} else {
		announce := func(bytes int64) error { return room(into, bytes) }
		if m, err = readArchive(ctx, path, strings.HasSuffix(path, ".zst"), announce, hear.visit(path, write)); err != nil {
			return m, err
		}
	}
	return m, dress(root, m)
}

// dress creates empty directories and sets modes and times of the files. Files that rouse itself
// keeps are accessible to the user only.
func dress(root *os.Root, m Manifest) error {
	for _, e := range m.Entries {
		if e.Folder {
			if err := root.MkdirAll(filepath.FromSlash(e.Path), 0o700); err != nil {
				return err
			}
		}
	}
	for _, e := range slices.Backward(m.Entries) { // contents before their directory
		name := filepath.FromSlash(e.Path)
		mode := fs.FileMode(0o600)
		if e.Folder {
			mode = 0o700
		}
		if rel, ok := strings.CutPrefix(e.Path, homePrefix); ok && !layout.Private(rel) {
			mode |= e.Mode
		}
		if err := root.Chmod(name, mode); err != nil {
			return err
		}
		if err := root.Chtimes(name, e.ModTime, e.ModTime); err != nil {
			return err
		}
	}
	return nil
}

// RestoreOptions holds the options of a restore.
type RestoreOptions struct {
	Source  string
	Said    string // name of the source in messages and notes; optional
	Home    string // absolute, without symbolic links
	Replace bool   // move an existing home aside
	Force   bool   // restore even if the audit finds violations
	Paused  bool   // pause everything until the owner resumes it
	Hear    Hear
}

// Restored holds the result of a restore.
type Restored struct {
	Checked
	Home       string `json:"home"`
	Kept       string `json:"kept,omitempty"`        // new path of the home that was replaced
	Config     string `json:"config,omitempty"`      // configuration file the home is bound to; "" if that file does not exist
	ConfigCopy string `json:"config_copy,omitempty"` // directory with configuration files from outside the home
	Paused     bool   `json:"paused"`
	// Dropped lists parts that a backup never contains. The backup was forged, or is older than the
	// rule for that part.
	Dropped []string `json:"dropped,omitempty"`
	// Disarmed lists the git repositories that were disabled by renaming. Their owner can rename
	// them back.
	Disarmed []shell.Disarmed `json:"disarmed,omitempty"`
	maint.Restored
}

// Restore restores a home from a backup. The new home is built and checked next to its destination
// and then renamed. A crash leaves either the old or the new home in place.
//
// The caller must hold the old home. hold locks the new home until it is in place.
func Restore(ctx context.Context, o RestoreOptions, hold func(dir string) (release func(), err error)) (out Restored, err error) {
	path, err := Find(o.Source)
	if err != nil {
		return out, err
	}
	there, err := occupied(o)
	if err != nil {
		return out, err
	}
	if fspath.Within(path, o.Home) && there {
		return out, refuse("the backup %s lies in the home %s that it is to take the place of; move it elsewhere", path, o.Home)
	}

	parent := filepath.Dir(o.Home)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return out, err
	}
	now := time.Now()
	staging := filepath.Join(parent, "."+filepath.Base(o.Home)+".restoring-"+stamp(now))
	if err := os.Mkdir(staging, 0o700); err != nil {
		return out, refuse("%s cannot be written, where the home is built before it gets its name: %v", parent, err)
	}
	// During the swap, staging may contain the replaced home, which must not be removed.
	swapping := false
	defer func() {
		if !swapping {
			err = errors.Join(err, os.RemoveAll(staging))
		}
	}()

	m, err := unpack(ctx, path, staging, o.Hear)
	if err != nil {
		return out, unsound(path, err)
	}
	out.Checked, out.Home = checked(path, m), o.Home
	if o.Said != "" {
		out.Path = o.Said
	}
	built := filepath.Join(staging, "home")
	if err := build(ctx, o, m, built, &out, now); err != nil {
		return out, err
	}
	if err := syncAll(staging); err != nil {
		return out, err
	}

	release, err := hold(built)
	if err != nil {
		return out, err
	}
	defer release()
	swapping = true
	if out.Kept, err = swap(built, o.Home, there, now); err != nil {
		return out, err
	}
	swapping = false
	return out, nil
}

// occupied reports whether there is a home to replace. It returns an error if there is one and
// replacing was not requested.
func occupied(o RestoreOptions) (bool, error) {
	entries, err := os.ReadDir(o.Home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, refuse("%s cannot be restored to: %v", o.Home, err)
	}

	for _, e := range entries {
		if name := e.Name(); name != "lock" && name != "holder.json" && !o.Replace {
			return true, refuse("there is something in %s already, and it was left as it is; say --replace, which moves it aside, or name another place with --home", o.Home)
		}
	}
	return true, nil
}

// build turns the unpacked files into a home and audits it.
func build(ctx context.Context, o RestoreOptions, m Manifest, home string, out *Restored, now time.Time) error {
	if err := checkSchema(m); err != nil {
		return err
	}
	if err := checkDatabases(ctx, home, m); err != nil {
		return unsound(out.Path, err)
	}

	var err error
	if out.Dropped, err = dropMade(home); err != nil {
		return err
	}
	if out.Disarmed, err = disarm(m, home, o.Home); err != nil {
		return err
	}
	if err := placeConfigs(o, m, home, out); err != nil {
		return err
	}
	if err := settle(ctx, o, m, home, out, now); err != nil {
		return err
	}

	if out.Audit, err = audit.Home(ctx, audit.Options{Home: home, Found: o.Hear.found}); err != nil {
		return err
	}
	if out.Audit.Violations > 0 && !o.Force {
		return refuse("nothing was restored, because the backup breaks %d of its promises, which are named above; say --force to restore it all the same", out.Audit.Violations)
	}
	return nil
}

// dropMade removes the parts of a new home that a process creates for itself, and returns their
// names. rouse trusts these files (for example which files commands were writing), so they must not
// come from a backup.
func dropMade(built string) (dropped []string, err error) {
	for _, part := range layout.Parts() {
		at := filepath.Join(built, part.Name)
		if _, missing := os.Lstat(at); part.Kind != layout.Made || missing != nil {
			continue
		}
		if err := os.RemoveAll(at); err != nil {
			return dropped, err
		}
		dropped = append(dropped, part.Name)
	}
	return dropped, nil
}

// disarm disables the git repositories of a new home by renaming their files, and returns them. The
// result includes repositories that the backup renamed. The manifest may be forged or made by a
// version that renamed none, and an agent may have created any repository.
func disarm(m Manifest, built, home string) ([]shell.Disarmed, error) {
	found, err := shell.Disarm(built)
	if err != nil {
		return nil, refuse("the home of the backup cannot be searched for git repositories: %v", err)
	}
	there := func(path string) string {
		if rel, err := filepath.Rel(built, path); err == nil {
			return filepath.Join(home, rel)
		}
		return path
	}
	for i, d := range found {
		found[i].Path = there(d.Path)
		for j, r := range d.Renamed {
			found[i].Renamed[j] = shell.Rename{From: there(r.From), To: there(r.To)}
		}
	}

	for _, e := range m.Entries {
		rel, ok := strings.CutPrefix(e.Path, homePrefix)
		if e.Was == "" || !ok {
			continue
		}
		to := filepath.Join(home, filepath.FromSlash(rel))
		r := shell.Rename{From: filepath.Join(filepath.Dir(to), e.Was), To: to}
		if n := len(found); n > 0 && found[n-1].Renamed[0].To == filepath.Dir(to) { // HEAD of a .git directory
			found[n-1].Renamed = append(found[n-1].Renamed, r)
			continue
		}
		path := r.From
		if !gitlayout.IsName(e.Was) {
			path = filepath.Dir(to)
		}
		found = append(found, shell.Disarmed{Path: path, Renamed: []shell.Rename{r}})
	}
	slices.Reverse(found) // nested repositories are restored before the outer one
	return found, nil
}

// placeConfigs moves configuration files from outside the home to restored/ and binds the home to
// its configuration. It writes only inside the home.
func placeConfigs(o RestoreOptions, m Manifest, home string, out *Restored) error {
	from, to := filepath.Join(filepath.Dir(home), "config"), filepath.Join(home, "restored")
	for _, e := range m.Entries {
		name, ok := strings.CutPrefix(e.Path, configPrefix)
		if !ok || e.Folder {
			continue
		}
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(from, filepath.FromSlash(name)), filepath.Join(to, filepath.Base(name))); err != nil {
			return err
		}
		out.ConfigCopy = filepath.Join(o.Home, "restored")
	}

	config := m.Config
	if rel, ok := fspath.Rel(m.Home, config); ok && config != "" {
		config = filepath.Join(o.Home, rel) // the file is part of the home
		if !exists(filepath.Join(home, rel)) {
			return nil
		}
	} else if config == "" || !exists(config) {
		return nil // the home is bound to the configuration it is first started with
	}
	out.Config = config
	return atomicfile.Write(filepath.Join(home, "config-path"), []byte(config), 0o600)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// settle records the restore in the ledger, so that external effects since the backup are not
// repeated without approval.
func settle(ctx context.Context, o RestoreOptions, m Manifest, home string, out *Restored, now time.Time) error {
	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(home, "ledger.db"), Blobs: filepath.Join(home, "blobs")})
	if err != nil {
		return refuse("the ledger of the backup cannot be used: %v", err)
	}

	out.Restored, err = l.Maint.Restored(ctx, maint.RestoreSpec{From: out.Path, TakenAt: m.At, NewestRun: newestRun(ctx, o.Home), Home: m.Home, At: o.Home, Pause: o.Paused})
	out.Paused = o.Paused
	id := l.ID()
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}

	if err := atomicfile.Write(filepath.Join(home, "ledger-id"), []byte(id+"\n"), 0o600); err != nil {
		return err
	}
	return note(filepath.Join(home, RestoredFile), Note{At: now.UTC(), Path: out.Path, Of: m.At, From: m.Home, Disarmed: out.Disarmed})
}

// newestRun returns the ID of the newest run of the home to be replaced, so that run IDs are not
// reused. It returns 0 if the ledger cannot be read.
func newestRun(ctx context.Context, home string) int64 {
	l, err := ledger.OpenShared(ctx, ledger.Options{Path: filepath.Join(home, "ledger.db")})
	if err != nil {
		return 0
	}
	defer func() { _ = l.Close() }() // it was only read
	n, err := l.NewestRun(ctx)
	if err != nil {
		return 0
	}
	return n
}

// swap moves the new home into place and returns the new path of the old one.
func swap(built, home string, there bool, now time.Time) (kept string, err error) {
	if !there {
		return "", renameFolder(built, home)
	}
	kept = home + ".replaced-" + stamp(now)

	swapped, err := exchange(built, home)
	switch {
	case err != nil:
		return "", refuse("the home %s cannot be replaced as a whole (%v); if a disk is mounted there, restore to a folder in it: --home %s", home, err, filepath.Join(home, "home"))
	case swapped && empty(built): // built now holds the old home
		return "", nil
	case swapped:
		return kept, renameFolder(built, kept)
	}

	// Without an atomic exchange, a crash between the two renames leaves the old home under its new
	// name.
	if err := renameFolder(home, kept); err != nil {
		return "", err
	}
	if err := renameFolder(built, home); err != nil {
		return "", errors.Join(err, renameFolder(kept, home))
	}
	return kept, nil
}

// empty reports whether a home contains only its lock files.
func empty(home string) bool {
	entries, err := os.ReadDir(home)
	for _, e := range entries {
		if name := e.Name(); name != "lock" && name != "holder.json" {
			return false
		}
	}
	return err == nil
}
