package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/atomicfile"
)

// Folder is a Store in a local folder.
type Folder struct{ Path string }

func (f Folder) file(name string) (string, error) {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return "", fmt.Errorf("%q is no name below %s", name, f.Path)
	}
	return filepath.Join(f.Path, local), nil
}

// Put implements Store.
func (f Folder) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	to, err := f.file(name)
	if err != nil {
		return err
	}
	// Do not create the top folder: it may be the mount point of a disk that is not mounted.
	if _, err := os.Stat(f.Path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return atomicfile.Stream(to, 0o600, func(w io.Writer) error {
		n, err := io.Copy(w, &patient{ctx, r})
		if err == nil && n != size {
			err = fmt.Errorf("%d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
		}
		return err
	})
}

// patient is a reader that fails once its context is done.
type patient struct {
	ctx context.Context
	r   io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	return p.r.Read(b)
}

// Get implements Store.
func (f Folder) Get(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	from, err := f.file(name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	if length == 0 {
		length = 1<<63 - 1 - offset
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, offset, length), file}, nil
}

// List implements Store.
func (f Folder) List(ctx context.Context, prefix, after string) ([]Object, error) {
	// All names with the prefix are below the folder that the prefix names up to its last slash.
	top, err := f.file(path.Dir(prefix + "x"))
	if err != nil {
		return nil, err
	}

	if _, err := os.Stat(f.Path); err != nil {
		return nil, err // a missing folder is an error, not an empty list
	}

	var out []Object
	err = filepath.WalkDir(top, func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		rel, err := filepath.Rel(f.Path, at)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if !e.Type().IsRegular() || !strings.HasPrefix(name, prefix) || name <= after || atomicfile.Unfinished(e.Name()) {
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			out = append(out, Object{name, info.Size()})
		}
		return err
	})
	slices.SortFunc(out, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// Delete implements Store.
func (f Folder) Delete(_ context.Context, names ...string) error {
	var errs []error
	for _, name := range names {
		at, err := f.file(name)
		if err == nil {
			err = os.Remove(at)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
