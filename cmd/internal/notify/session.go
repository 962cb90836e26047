package notify

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	sessionTimeout = 2 * time.Second
	sessionAge     = 15 * time.Second // minimum time between two probes
)

// Session reports whether this process can show notices on a desktop. The zero value is ready to use.
type Session struct {
	mu     sync.Mutex
	seen   bool
	probed time.Time
}

// Exists reports whether there is a desktop session. Once it has found a session, it returns true until the process ends,
// so that notices wait for the next login.
//
// nolint: contextcheck // it reads local state and returns soon
func (s *Session) Exists() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen || !s.probed.IsZero() && time.Since(s.probed) < sessionAge {
		return s.seen
	}

	ctx, cancel := context.WithTimeout(context.Background(), sessionTimeout)
	defer cancel()
	s.seen, s.probed = !errors.Is(Desktop().Check(ctx), ErrUnavailable), time.Now()
	return s.seen
}
