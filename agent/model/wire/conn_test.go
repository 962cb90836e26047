package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// What is longer than the buffer arrives whole, and a reader's error is the copy's.
func TestPooledConn(t *testing.T) {
	sent := strings.Repeat("0123456789abcdef", 20_000)
	failure := errors.New("no more")
	for _, want := range []error{nil, failure} {
		near, far := net.Pipe()
		heard := make(chan []byte)
		go func() {
			got, _ := io.ReadAll(far)
			heard <- got
		}()
		from := io.Reader(strings.NewReader(sent))
		if want != nil {
			from = io.MultiReader(from, iotest.ErrReader(want))
		}

		n, err := pooledConn{near}.ReadFrom(from)
		if !errors.Is(err, want) || n != int64(len(sent)) {
			t.Errorf("%d bytes of %d were written: %v", n, len(sent), err)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; !bytes.Equal(got, []byte(sent)) {
			t.Errorf("%d bytes arrived of %d", len(got), len(sent))
		}
	}
}
