package wire

import (
	"context"
	"io"
	"net"
	"sync"
)

// pooledConn writes bodies through a buffer that all of them share: net/http takes a new one of
// 32 KiB for each request over an unencrypted connection, which is more than everything else
// that a turn of a short run needs.
type pooledConn struct{ net.Conn }

// copyBuffers are *[]byte. A history of a hundred turns is written in two or three pieces.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// ReadFrom implements io.ReaderFrom.
func (c pooledConn) ReadFrom(r io.Reader) (int64, error) {
	b := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(b)
	return io.CopyBuffer(onlyWriter{c.Conn}, onlyReader{r}, *b)
}

// onlyWriter and onlyReader hide what would go around the buffer.
type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }

// pooledDialer dials connections that share their buffers.
func pooledDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return pooledConn{c}, nil
	}
}
