package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/owner"
)

// unwritable says whether something could not be written because of its folder: it is read-only, of
// somebody else, or its disk is full or fails.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EDQUOT)
}

// LedgerOptions say where the ledger of a home is.
func LedgerOptions(home string) ledger.Options {
	return ledger.Options{Path: filepath.Join(home, ledgerName), Blobs: filepath.Join(home, "blobs")}
}

// openLedger opens the ledger of a home that this process holds. A command can still read one that
// cannot be written, or is damaged; a daemon needs to write.
func (d *Daemon) openLedger(ctx context.Context, opening Options) (err error) {
	if opening.Config.Shared() {
		return d.openShared(ctx, opening)
	}

	o := LedgerOptions(d.home.Dir)
	o.Logger, o.Now = d.log, opening.Now

	var why *ledger.ReadOnlyError
	if d.home.readOnly != nil {
		why = ledger.CannotWrite(d.home.Dir, d.home.readOnly)
		err = why
	} else {
		d.ledger, err = ledger.Open(ctx, o)
	}

	if errors.As(err, &why) && !opening.Serves {
		d.ledger, err = ledger.OpenReadOnly(ctx, o, why)
	}
	if err != nil {
		return fmt.Errorf("the history cannot be opened: %w", err)
	}

	return nil
}

// ReadOnly is why nothing can be written to the history now; nil: it can be.
func (d *Daemon) ReadOnly() error { return d.ledger.ReadOnly() }

// readOnlyHome says in advance why a home could only be read, as far as its marker and its modes tell;
// "" when nothing is known against it.
func readOnlyHome(dir string) string {
	if err := ledger.Glance(LedgerOptions(dir)); err != nil {
		return err.Error()
	}
	return ""
}

// HomeProblem says what would keep a daemon from serving a home that nobody serves, as far as can be told
// without opening it; "" when nothing is known against it.
func HomeProblem(ctx context.Context, dir string) string {
	err := owner.CheckHome(dir)
	if err == nil && SharedLedger(dir) != nil {
		return "" // whether PostgreSQL answers is found by whoever opens it
	}
	if err == nil {
		err = FindLedger(ctx, dir)
	}
	if err != nil {
		return err.Error()
	}
	return readOnlyHome(dir)
}

// HoldHome keeps everybody else from a home until release is called, for what changes its ledger as a
// whole. It waits for a command, which is short, and refuses while a daemon serves the home, and where the ledger is not in it.
func HoldHome(ctx context.Context, dir string, say func(*HeldError)) (release func(), err error) {
	if err := SharedLedger(dir); err != nil {
		return nil, err
	}
	return HoldAnyHome(ctx, dir, say)
}

// HoldAnyHome is HoldHome for a command that moves a ledger, wherever that is.
func HoldAnyHome(ctx context.Context, dir string, say func(*HeldError)) (release func(), err error) {
	var h *home
	err = WaitForHome(ctx, say, func() (err error) {
		h, err = OpenHome(dir, Holder{PID: os.Getpid(), Version: Version(), StartedAt: time.Now()})
		var held *HeldError
		if errors.As(err, &held) && held.holder.Daemon {
			return &servedError{err}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if h.readOnly != nil {
		return nil, errors.Join(ledger.CannotWrite(dir, h.readOnly), h.Close())
	}

	h.sayMended(os.Stderr)
	return func() { _ = h.Close() }, nil // the lock ends with the process in any case
}

// watchLedger ends the daemon when its ledger is found to be damaged: nothing can be done that is not
// on record.
func (d *Daemon) watchLedger(ctx context.Context) error {
	select {
	case <-d.ledger.Damaged():
		return d.ledger.ReadOnly()
	case <-ctx.Done():
		return nil
	}
}
