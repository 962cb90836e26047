package access

import "context"

type callerKey struct{}

// withCaller has Caller know who was let in: by a session, or without one by the token.
func withCaller(ctx context.Context, s *session) context.Context {
	caller := "token"
	if s != nil {
		caller = "session " + s.ID
	}
	return context.WithValue(ctx, callerKey{}, caller)
}

// Caller is who Guard let in, "token" or "session ID"; "" where a request did not come by it.
func Caller(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}
