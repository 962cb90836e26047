// Package objects stores named objects in a folder or a bucket: continuous copies of databases, and
// large values.
package objects

import (
	"context"
	"io"
)

// Store holds named objects. It is a folder or a bucket. Names may contain slashes.
type Store interface {
	// Put writes an object of size bytes atomically and replaces an existing object of that name.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get returns a reader for length bytes of an object, starting at offset. If length is zero, it
	// reads to the end. The error is fs.ErrNotExist if there is no such object. The caller must
	// close the reader.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// List returns the objects with the given name prefix that sort after the name after, in order.
	List(ctx context.Context, prefix, after string) ([]Object, error)
	Delete(ctx context.Context, names ...string) error
}

// Object describes an object in a store.
type Object struct {
	Name  string
	Bytes int64
}
