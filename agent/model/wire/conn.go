package wire

import (
	"context"
	"io"
	"net"
	"sync"
)

// pooledConn writes request bodies through pooled buffers: net/http allocates a new one of 32 KiB
// for each request over an unencrypted connection, which is more than everything else that a
// turn of a short run needs.
type pooledConn struct{ net.Conn }

// copyBuffers holds *[]byte. A history of a hundred turns is written in two or three pieces.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// ReadFrom implements io.ReaderFrom.
func (c pooledConn) ReadFrom(r io.Reader) (int64, error) {
	b := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(b)
	return io.CopyBuffer(onlyWriter{c.Conn}, onlyReader{r}, *b)
}

// onlyWriter and onlyReader hide ReadFrom and WriteTo, by which io.CopyBuffer would go around
// the buffer.
type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }

// pooledDialer makes a dialer return pooledConns.
func pooledDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return pooledConn{c}, nil
	}
}
