package wire

import (
	"context"
	"io"
	"net"
	"sync"
)

// connection writes bodies through a buffer that all of them share: net/http takes a new one of
// 32 KiB for each request over an unencrypted connection, which is more than everything else
// that a turn of a short run needs.
type connection struct{ net.Conn }

// buffers are *[]byte. A history of a hundred turns is written in two or three pieces.
var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// ReadFrom implements io.ReaderFrom.
func (c connection) ReadFrom(r io.Reader) (int64, error) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	return io.CopyBuffer(onlyWriter{c.Conn}, onlyReader{r}, *b)
}

// onlyWriter and onlyReader hide what would go around the buffer.
type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }

// buffered dials connections that share their buffers.
func buffered(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return connection{c}, nil
	}
}
