package access

import "context"

type callerKey struct{}

// callerOf names who was let in: by a session, or without one by the token.
func callerOf(s *session) string {
	if s != nil {
		return "session " + s.ID
	}
	return "token"
}

// enter counts a request of a caller until leave is called. It reports false if the caller has too many already.
func (a *Access) enter(caller string) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[caller] >= maxRequests {
		return nil, false
	}
	if a.open == nil {
		a.open = map[string]int{}
	}
	a.open[caller]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.open[caller]--; a.open[caller] == 0 {
			delete(a.open, caller)
		}
	}, true
}

// Caller is who Guard let in, "token" or "session ID"; "" where a request did not come by it.
func Caller(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}
