package homedir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/layout"
	"rouse/internal/atomicfile"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
	"rouse/internal/owner"
)

// Holder describes the process that holds a home. It is shown in the errors of other processes.
type Holder struct {
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Config    string    `json:"config"`
	StartedAt time.Time `json:"started_at"`
	Daemon    bool      `json:"daemon"`
}

// since returns the start time in the time zone that the process had at its start.
func (h Holder) since() string { return api.LocalTime(h.StartedAt, h.StartedAt.Location()) }

// HeldError is returned if another process holds the home.
type HeldError struct {
	dir    string
	holder Holder
}

func (e *HeldError) Error() string {
	what := "another rouse command"
	if e.holder.Daemon {
		what = "a rouse daemon"
	}

	// The holder has the lock, but has not written its file yet or cannot write it.
	if e.holder.PID == 0 {
		return fmt.Sprintf("%s already works on %s; wait for it to end, or stop it", what, e.dir)
	}

	return fmt.Sprintf("%s (process %d, since %s) already works on %s; wait for it to end, or stop it with: kill %d",
		what, e.holder.PID, e.holder.since(), e.dir, e.holder.PID)
}

// Held returns the error for a home that another process holds.
func Held(dir string) *HeldError { return &HeldError{dir: dir, holder: readHolder(dir)} }

// Unanswered returns the error for a daemon that holds the home but does not answer. It returns
// false if a command holds the home.
func (e *HeldError) Unanswered() (error, bool) {
	return fmt.Errorf("the daemon that works on %s (process %d) does not answer: it is starting or stopping, or has reached its limit of open files (see its log); to end it: kill %[2]d",
		e.dir, e.holder.PID), e.holder.Daemon
}

// Waiting returns a message about the process that the caller waits for.
func (e *HeldError) Waiting() string {
	who := "another rouse process"
	if e.holder.PID != 0 {
		who = fmt.Sprintf("rouse process %d, since %s,", e.holder.PID, e.holder.since())
	}
	return fmt.Sprintf("waiting for up to %s, because %s works on %s", homeWait, who, e.dir)
}

// Home is the folder that holds all state of one rouse. One process at a time holds its lock.
type Home struct {
	Dir      string
	lock     *flock.Flock
	Mended   string // previous mode if it was corrected, otherwise empty
	ReadOnly error  // reason the home cannot be written; nil if it can
}

// Open creates the folder if necessary and acquires its exclusive lock. The operating system
// releases the lock when the process ends. It returns a *HeldError if another process holds the
// lock. If the home cannot be written, Open opens it read-only.
func Open(dir string, self Holder) (*Home, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the home folder %s: %w; choose another with --home", dir, err)
	}
	mended, err := ownHome(dir)
	if err != nil {
		return nil, err
	}

	h := &Home{Dir: dir, Mended: mended, lock: flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))}
	locked, err := h.lock.TryLock()
	switch {
	case unwritable(err): // no process can create the lock file
		h.ReadOnly = err
		return h, nil
	case err != nil:
		return nil, fmt.Errorf("cannot lock the home folder %s: %w", dir, err)
	case !locked:
		return nil, Held(dir)
	}

	err = h.writeHolder(self)
	if errors.Is(err, syscall.ENOSPC) { // a disk that filled up meanwhile must not make the home read-only
		if err = store.FreeReserve(filepath.Join(dir, LedgerName)); err == nil {
			err = h.writeHolder(self)
		}
	}
	if unwritable(err) {
		h.ReadOnly, err = err, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write to the home folder %s: %w", dir, err), h.lock.Unlock())
	}
	return h, nil
}

// SayMended tells the user of a command that the mode of the home was corrected. A daemon logs it
// instead.
func (h *Home) SayMended(w io.Writer) {
	if h.Mended != "" {
		fmt.Fprintf(w, "rouse: the home %s could be read by others (mode %s), and is its user's alone from now on; what lies in it is mended by: rouse doctor --fix\n", h.Dir, h.Mended)
	}
}

// readHolder reads the holder of a home from a separate file. Some systems do not allow reading a
// locked file.
func readHolder(dir string) Holder {
	var self Holder
	text, err := os.ReadFile(filepath.Join(dir, "holder.json"))
	if err != nil || json.Unmarshal(text, &self) != nil {
		// Only the error message is affected, because the lock decides.
		return Holder{}
	}
	return self
}

// writeHolder records the holder of a home. Like the lock, the file need not survive a crash of the
// machine.
func (h *Home) writeHolder(self Holder) error {
	text, err := json.Marshal(self)
	if err != nil {
		return err
	}
	return atomicfile.WriteUnsynced(filepath.Join(h.Dir, "holder.json"), text, 0o600)
}

// Close removes the holder's file and releases the lock.
func (h *Home) Close() error {
	err := os.Remove(filepath.Join(h.Dir, "holder.json"))
	if errors.Is(err, fs.ErrNotExist) || h.ReadOnly != nil {
		err = nil
	}
	return errors.Join(err, h.lock.Unlock())
}

// Adopt binds the home to its first configuration, so that a wrong --config cannot use its history.
// If force is set, it rebinds the home to the configuration at path.
func (h *Home) Adopt(path string, force bool) error {
	stamp := filepath.Join(h.Dir, config.AdoptedFile)
	old, err := os.ReadFile(stamp)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("cannot read %s: %w", stamp, err)
	case string(old) == path:
		return nil
	case !force:
		return fmt.Errorf("the home %s belongs to the configuration %s, not to %s; give --adopt if it was moved, or another --home", h.Dir, old, path)
	}

	return atomicfile.Write(stamp, []byte(path), 0o600)
}

// ownHome returns an error if other users can change the home. If they can read it, it corrects the
// mode and returns the previous one.
func ownHome(dir string) (mended string, err error) {
	if err := owner.CheckHome(dir); err != nil {
		return "", err
	}

	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("the home folder cannot be used: %w", err)
	}

	mode := info.Mode().Perm()
	if !owner.HasModes || mode&0o077 == 0 {
		return "", nil
	}
	if err := os.Chmod(dir, mode&0o700); err != nil {
		return "", fmt.Errorf("the home folder %s is open to others (mode %#o), and that cannot be mended: %w", dir, mode, err)
	}
	return fmt.Sprintf("%#o", mode), nil
}

// OpenToOthers returns the paths in a home that other users can read or write, beginning with the
// home. It includes the folder of the socket. Files in workdirs are not checked, because agents may
// share them.
func OpenToOthers(home string) (paths []string, err error) {
	if !owner.HasModes {
		return nil, nil
	}

	others := func(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 && owner.Mine(info) }
	err = filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return err // a link has no mode, and its target is outside of the home
		}
		if e.IsDir() && !ours(home, path) {
			return fs.SkipDir
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // temporary file, already deleted
		}
		if err == nil && others(info) {
			paths = append(paths, path)
		}
		return err
	})
	if folder := filepath.Dir(SocketPath(home)); folder != home {
		if info, statErr := os.Lstat(folder); statErr == nil && info.IsDir() && others(info) {
			paths = append(paths, folder)
		}
	}
	return paths, err
}

// ours reports whether rouse created a folder in the home. Workdirs and skills are not checked.
func ours(home, path string) bool {
	rel, err := filepath.Rel(home, path)
	part, _ := layout.Of(filepath.ToSlash(rel))
	return path == home || err == nil && layout.Kept(home, path) && part.Name != "skills" && !layout.Clone(filepath.ToSlash(rel))
}

// FixModes removes the permissions of other users from the paths of OpenToOthers, and returns the
// changed paths.
func FixModes(home string) (fixed []string, err error) {
	paths, err := OpenToOthers(home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the home does not exist yet
	}

	for _, path := range paths {
		info, statErr := os.Lstat(path)
		if statErr == nil && info.Mode()&fs.ModeSymlink == 0 {
			statErr = os.Chmod(path, info.Mode().Perm()&0o700)
		}
		if err = errors.Join(err, statErr); statErr == nil {
			fixed = append(fixed, path)
		}
	}
	return fixed, err
}

// unwritable reports whether err means that a folder is read-only, full, or on a failing disk.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EDQUOT)
}

// LedgerOptions returns the paths of a home's ledger file and blobs.
func LedgerOptions(home string) ledger.Options {
	return ledger.Options{Path: filepath.Join(home, LedgerName), Blobs: filepath.Join(home, "blobs")}
}

// Problem returns a reason that a daemon cannot serve a home, or an empty string. It does not open
// the home, so it cannot find all problems.
func Problem(ctx context.Context, dir string) string {
	err := owner.CheckHome(dir)
	if err == nil && SharedLedger(dir) != nil {
		return "" // opening the ledger shows whether PostgreSQL answers
	}
	if err == nil {
		err = FindLedger(ctx, dir)
	}
	if err == nil {
		err = store.Glance(LedgerOptions(dir)) // checks only marker and modes
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// Hold keeps other processes from a home until release is called. It is for commands that change
// the ledger as a whole. It waits for a command that holds the home. It returns an error if a
// daemon serves the home or the ledger is in PostgreSQL.
func Hold(ctx context.Context, dir string, say func(*HeldError)) (release func(), err error) {
	if err := SharedLedger(dir); err != nil {
		return nil, err
	}
	return HoldAny(ctx, dir, say)
}

// HoldAny works like Hold, but also accepts a ledger in PostgreSQL. It is for commands that move a
// ledger.
func HoldAny(ctx context.Context, dir string, say func(*HeldError)) (release func(), err error) {
	var h *Home
	err = Wait(ctx, say, func() (err error) {
		h, err = Open(dir, Holder{PID: os.Getpid(), Version: buildinfo.Version(), StartedAt: time.Now()})
		var held *HeldError
		if errors.As(err, &held) && held.holder.Daemon {
			return &ServedError{err}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if h.ReadOnly != nil {
		return nil, errors.Join(store.CannotWrite(dir, h.ReadOnly), h.Close())
	}

	h.SayMended(os.Stderr)
	return func() { _ = h.Close() }, nil // the lock ends with the process in any case
}
