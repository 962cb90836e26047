package tool

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"
)

// lockFiles is the number of lock files that all paths share. Lock files are never removed, because
// a process waiting for a removed file would not exclude others.
const lockFiles = 256

// Locks serializes changes of files by path, from reading the file to the rename. It excludes other
// calls in this process and, if it has a folder, in all processes that use the same folder. A nil
// *Locks does not lock.
type Locks struct {
	folder string
	turns  [lockFiles]chan struct{} // capacity 1; full while the lock is held
}

// NewLocks returns locks with lock files in a folder, which agents must not be able to access. If
// folder is empty, the locks apply only to users of the returned value.
func NewLocks(folder string) *Locks {
	l := &Locks{folder: folder}
	for i := range l.turns {
		l.turns[i] = make(chan struct{}, 1)
	}
	return l
}

// Acquire locks a path, which must come from Roots.Canonical. A caller must not hold two locks,
// because two paths may share a lock; see AcquireAll. The caller must call release. Acquire returns
// a *Refusal if ctx ends first.
func (l *Locks) Acquire(ctx context.Context, path string) (release func(), err error) {
	if l == nil {
		return func() {}, nil
	}

	n := slot(path)
	select {
	case l.turns[n] <- struct{}{}:
	case <-ctx.Done():
		return nil, notWaitedFor(ctx, path)
	}

	unlock, err := l.lockFile(ctx, path, fmt.Sprintf("file-%02x", n))
	if err != nil {
		<-l.turns[n]
		return nil, err
	}
	return func() {
		unlock()
		<-l.turns[n]
	}, nil
}

// AcquireAll locks several paths in a fixed order, so that callers cannot deadlock. The caller must
// call release.
func (l *Locks) AcquireAll(ctx context.Context, paths ...string) (release func(), err error) {
	var held []func()
	release = func() {
		for _, one := range slices.Backward(held) {
			one()
		}
	}
	if l == nil {
		return release, nil
	}

	bySlot := map[uint32]string{}
	for _, path := range paths {
		bySlot[slot(path)] = path
	}
	for _, n := range slices.Sorted(maps.Keys(bySlot)) {
		one, err := l.Acquire(ctx, bySlot[n])
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, one)
	}
	return release, nil
}

func slot(path string) uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(strings.ToLower(path))) // some file systems ignore case; on others, the paths share a lock
	return sum.Sum32() % lockFiles
}

// lockFile locks a lock file. It waits while another process holds the lock. The operating system
// releases the lock when the process ends.
func (l *Locks) lockFile(ctx context.Context, path, name string) (unlock func(), err error) {
	if l.folder == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(l.folder, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for locks cannot be made: %w", err)
	}

	file := flock.New(filepath.Join(l.folder, name), flock.SetPermissions(0o600))
	unlock = func() { _ = file.Unlock() } // Unlock closes the file, which releases the lock even after an error

	// A blocked Lock call cannot be cancelled. If ctx ends first, the lock is released once
	// acquired.
	locked := make(chan error, 1)
	go func() { locked <- file.Lock() }()
	select {
	case err := <-locked:
		if err != nil {
			return nil, fmt.Errorf("a change of a file cannot be kept apart from those of other processes: %w", err)
		}
		return unlock, nil
	case <-ctx.Done():
		go func() {
			if <-locked == nil {
				unlock()
			}
		}()
		return nil, notWaitedFor(ctx, path)
	}
}

func notWaitedFor(ctx context.Context, path string) error {
	return RefusePath(KindExecutionError, "another change of %s was being made, and this one was ended while it waited: %v", filepath.Base(path), context.Cause(ctx))
}
