// Package objects keeps named objects at a place beside a database: continuous copies, and large values.
package objects

import (
	"context"
	"io"
)

// Store is a place for named objects: a folder, or a bucket. Names have slashes.
type Store interface {
	// Put writes an object whole, or not at all; one of that name is replaced.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get reads an object from an offset, length bytes or, with 0, to its end. fs.ErrNotExist: there is none.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// List gives the objects whose names begin with prefix and come after a name, in order.
	List(ctx context.Context, prefix, after string) ([]Object, error)
	Delete(ctx context.Context, names ...string) error
}

// Object is what a store holds under a name.
type Object struct {
	Name  string
	Bytes int64
}
