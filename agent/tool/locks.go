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

// lockFiles is the number of lock files that all paths share. They are never removed: a removed
// lock file that somebody waits for locks nothing.
const lockFiles = 256

// Locks make the changes of one path take turns, from reading the file to the rename: in this
// process and, with a folder, among all processes that use the same one.
type Locks struct {
	folder string
	turns  [lockFiles]chan struct{} // of capacity 1; whoever holds the turn has filled it
}

// NewLocks keeps its lock files in a folder that no agent may reach; "" locks within this value
// alone. A nil *Locks locks nothing.
func NewLocks(folder string) *Locks {
	l := &Locks{folder: folder}
	for i := range l.turns {
		l.turns[i] = make(chan struct{}, 1)
	}
	return l
}

// Acquire waits for the turn of a path, as Roots.Canonical returns it. A caller must not hold two
// turns: two paths may share a lock. The error is a *Refusal if ctx ended.
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

// AcquireAll acquires several paths in a fixed order, so that calls cannot deadlock.
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
	_, _ = sum.Write([]byte(strings.ToLower(path))) // some file systems ignore case; on others, two paths share a lock
	return sum.Sum32() % lockFiles
}

// lockFile waits until no other process holds a lock file. The system releases it with its process.
func (l *Locks) lockFile(ctx context.Context, path, name string) (unlock func(), err error) {
	if l.folder == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(l.folder, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for locks cannot be made: %w", err)
	}

	file := flock.New(filepath.Join(l.folder, name), flock.SetPermissions(0o600))
	unlock = func() { _ = file.Unlock() } // which closes it: nothing is left that could hold the lock

	// A waiter cannot leave the system's queue, which is fair: it releases the lock once it has it.
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
