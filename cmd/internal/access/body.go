package access

import (
	"io"
	"net/http"
	"time"
)

const (
	// bodyBegins is how long a client may take before it must have sent as much as bodyRate asks for.
	bodyBegins = 20 * time.Second
	// bodyRate is how fast a body must come, in bytes a second: whoever sends a byte a minute keeps a connection for ever.
	bodyRate = 16 << 10
)

// timedBody is a body that must come in time. net/http takes the deadline away when the body is over, so that what is
// followed does not end with it.
type timedBody struct {
	io.ReadCloser
	deadline *http.ResponseController
	began    time.Time
	read     int64
}

func newTimedBody(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	if body == nil || body == http.NoBody {
		return body
	}
	b := &timedBody{ReadCloser: body, deadline: http.NewResponseController(w), began: time.Now()}
	// From the beginning: net/http itself reads what a handler has left, so that the next request can be read.
	_ = b.deadline.SetReadDeadline(b.began.Add(bodyBegins)) // Read says what is wrong with it
	return b
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	until := b.began.Add(bodyBegins + time.Duration(b.read/bodyRate)*time.Second)
	if err := b.deadline.SetReadDeadline(until); err != nil {
		return 0, err
	}

	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}
