package daemon

import (
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

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/atomicfile"
)

// Holder describes the process that holds a home, for the error that a second one gets.
type Holder struct {
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Config    string    `json:"config"`
	StartedAt time.Time `json:"started_at"`
	Daemon    bool      `json:"daemon"`
}

// since returns the start time in the zone that the process used at its start.
func (h Holder) since() string { return api.LocalTime(h.StartedAt, h.StartedAt.Location()) }

// HeldError is returned when another process holds the home.
type HeldError struct {
	dir    string
	holder Holder
}

func (e *HeldError) Error() string {
	what := "another rouse command"
	if e.holder.Daemon {
		what = "a rouse daemon"
	}

	// The holder has the lock but has not written its file yet, or cannot.
	if e.holder.PID == 0 {
		return fmt.Sprintf("%s already works on %s; wait for it to end, or stop it", what, e.dir)
	}

	return fmt.Sprintf("%s (process %d, since %s) already works on %s; wait for it to end, or stop it with: kill %d",
		what, e.holder.PID, e.holder.since(), e.dir, e.holder.PID)
}

// Held is the error that says who holds a home.
func Held(dir string) *HeldError { return &HeldError{dir: dir, holder: readHolder(dir)} }

// Unanswered returns an error saying that the daemon that holds the home does not answer. It returns false if a command holds the home.
func (e *HeldError) Unanswered() (error, bool) {
	if !e.holder.Daemon {
		return nil, false
	}
	return fmt.Errorf("the daemon that works on %s (process %d) does not answer: it is starting or stopping, or has reached its limit of open files (see its log); to end it: kill %[2]d",
		e.dir, e.holder.PID), true
}

// Waiting says for whom a process waits that wants the home.
func (e *HeldError) Waiting() string {
	who := "another rouse process"
	if e.holder.PID != 0 {
		who = fmt.Sprintf("rouse process %d, since %s,", e.holder.PID, e.holder.since())
	}
	return fmt.Sprintf("waiting for up to %s, because %s works on %s", homeWait, who, e.dir)
}

// home is the folder that holds all state of one rouse: one process at a time owns it.
type home struct {
	Dir      string
	lock     *flock.Flock
	mended   string // what was wrong with its mode, "" when nothing was
	readOnly error  // why nothing can be written in it; nil: it can be
}

// OpenHome creates the folder if needed and acquires its exclusive lock, which the
// operating system releases when the process ends, however it ends. If another process holds
// it, the error is a *HeldError. One that exists and cannot be written is opened for reading, and
// says so.
func OpenHome(dir string, self Holder) (*home, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the home folder %s: %w; choose another with --home", dir, err)
	}
	mended, err := ownHome(dir)
	if err != nil {
		return nil, err
	}

	h := &home{Dir: dir, mended: mended, lock: flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))}
	locked, err := h.lock.TryLock()
	if unwritable(err) { // there is no file to lock, and nobody can make one
		h.readOnly = err
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock the home folder %s: %w", dir, err)
	}
	if !locked {
		return nil, Held(dir)
	}

	text, err := json.Marshal(self)
	if err == nil {
		err = h.writeHolder(text)
	}
	if errors.Is(err, syscall.ENOSPC) { // a disk that filled up meanwhile must not make the home read-only
		if err = ledger.FreeReserve(filepath.Join(dir, "ledger.db")); err == nil {
			err = h.writeHolder(text)
		}
	}
	if unwritable(err) {
		h.readOnly = err
		return h, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write to the home folder %s: %w", dir, err), h.lock.Unlock())
	}

	return h, nil
}

// sayMended says to the user of a command what a daemon would log.
func (h *home) sayMended(w io.Writer) {
	if h.mended != "" {
		fmt.Fprintf(w, "rouse: the home %s could be read by others (mode %s), and is its user's alone from now on; what lies in it is mended by: rouse doctor --fix\n", h.Dir, h.mended)
	}
}

// readHolder reads who holds the home, from a file of its own, because some systems do not let a locked
// file be read.
func readHolder(dir string) Holder {
	var self Holder
	text, err := os.ReadFile(filepath.Join(dir, "holder.json"))
	if err != nil || json.Unmarshal(text, &self) != nil {
		// Only the message gets poorer: the lock decides, not this file.
		return Holder{}
	}
	return self
}

// writeHolder says who holds the home. The lock does not outlive the machine, so this need not either.
func (h *home) writeHolder(text []byte) error {
	return atomicfile.WriteUnsynced(h.holderFile(), text, 0o600)
}

func (h *home) holderFile() string { return filepath.Join(h.Dir, "holder.json") }

// Close removes the holder's file before the lock is released, so that it never describes a
// process that is gone to one that holds the home.
func (h *home) Close() error {
	err := os.Remove(h.holderFile())
	if errors.Is(err, fs.ErrNotExist) || h.readOnly != nil {
		err = nil
	}
	return errors.Join(err, h.lock.Unlock())
}

// adopt binds the home to the configuration it was first started with, so that a
// typing error in --config cannot run one person's jobs on another's history.
func (h *home) adopt(path string, force bool) error {
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
