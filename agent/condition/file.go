package condition

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/agent/plan"
	"rouse/internal/nofollow"
	"rouse/internal/pattern"
)

// checkFile looks for a file with the path or pattern of a condition. It uses a goroutine, because
// a network folder may never respond.
func checkFile(ctx context.Context, b nofollow.UntrustedDirs, g plan.Condition) (value string, ok bool, err error) {
	type answer struct {
		found string
		err   error
	}
	done := make(chan answer, 1) // buffered, so that a late result does not block the goroutine
	go func() {
		found, err := findFile(ctx, b, g.File)
		done <- answer{found, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		a.err = ctx.Err()
	}

	switch {
	case a.found != "":
		return a.found, true, nil
	case a.err != nil:
		return "", false, explainTimeout(ctx, g, a.err)
	}

	return "absent", false, nil
}

// findFile returns "present" if the path exists, or else the first file that matches it as a
// pattern. It reports an unreadable folder only if no file is found. It does not follow links that
// an agent may have made.
func findFile(ctx context.Context, b nofollow.UntrustedDirs, path string) (found string, err error) {
	path = spelled(b, path)
	_, err = b.Stat(path)
	if err == nil {
		return "present", nil
	}
	if !strings.ContainsAny(path, "*?[{") {
		return "", IgnoreNotExist(err)
	}

	base, glob := doublestar.SplitPattern(filepath.ToSlash(pattern.Name(path)))
	base = spelled(b, base)
	tree := &trackingFS{boundary: b, base: base, ctx: ctx}
	enough := errors.New("one is enough")
	err = doublestar.GlobWalk(tree, glob, func(name string, _ fs.DirEntry) error {
		found = tree.path(name)
		return enough
	}, doublestar.WithFilesOnly(), doublestar.WithNoHidden())
	switch {
	case found != "":
		return found, nil
	case err != nil:
		return "", fmt.Errorf("the pattern is broken: %w", err)
	}

	return "", tree.err
}

// IgnoreNotExist returns nil if err means that a file does not exist or is behind a link made by an
// agent. Otherwise it returns err, with a remedy if access was denied.
func IgnoreNotExist(err error) error {
	_, link := errors.AsType[*nofollow.LinkError](err)
	switch {
	case link, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; let the user as whom rouse runs look there", err)
	}
	return err
}

// trackingFS is a file tree that stops with its context and remembers the first read error.
type trackingFS struct {
	boundary nofollow.UntrustedDirs
	base     string
	ctx      context.Context
	err      error
}

// path returns the path of a file with the Unicode form of its stored name.
func (l *trackingFS) path(name string) string {
	return spelled(l.boundary, filepath.Join(l.base, filepath.FromSlash(name)))
}

// spelled returns path with the names as they are stored in the file system. They may use a
// different Unicode form.
func spelled(b nofollow.UntrustedDirs, path string) string {
	if isASCII(path) {
		return path
	}
	_, err := b.Stat(path)
	dir, name := filepath.Dir(path), filepath.Base(path)
	if err == nil || dir == path {
		return path
	}

	dir = spelled(b, dir)
	entries, _ := b.ReadDir(dir) // if this fails, opening the file fails too
	for _, e := range entries {
		if pattern.Name(e.Name()) == pattern.Name(name) {
			return filepath.Join(dir, e.Name())
		}
	}
	return filepath.Join(dir, name)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// composedEntry is a directory entry with its name in composed Unicode form, which globs use.
type composedEntry struct {
	fs.DirEntry
	name string
}

// Name implements fs.DirEntry.
func (e composedEntry) Name() string { return e.name }

func (l *trackingFS) note(err error) error {
	if l.err == nil && err != nil {
		l.err = IgnoreNotExist(err)
	}
	return err
}

// Open implements fs.FS.
func (l *trackingFS) Open(name string) (fs.File, error) {
	if err := l.note(l.ctx.Err()); err != nil {
		return nil, err
	}
	f, err := l.boundary.Open(l.path(name))
	if err != nil {
		return nil, l.note(err)
	}
	return f, nil
}

// Stat implements fs.StatFS.
func (l *trackingFS) Stat(name string) (fs.FileInfo, error) {
	if err := l.note(l.ctx.Err()); err != nil {
		return nil, err
	}
	info, err := l.boundary.Stat(l.path(name))
	return info, l.note(err)
}

// ReadDir implements fs.ReadDirFS.
func (l *trackingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := l.note(l.ctx.Err()); err != nil {
		return nil, err
	}
	entries, err := l.boundary.ReadDir(l.path(name))
	for i, e := range entries {
		if !isASCII(e.Name()) {
			entries[i] = composedEntry{e, pattern.Name(e.Name())}
		}
	}
	return entries, l.note(err)
}
