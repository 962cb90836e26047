//go:build !(linux && (amd64 || arm64))

package sandbox

import (
	"context"
	"errors"
	"runtime"
)

// host knows no confinement.
type host struct{}

func newHost() (*host, error) { return &host{}, nil }

func (*host) close() error { return nil }

func (*host) probe(context.Context, Tier) (Tier, []string) {
	return TierD, []string{"no confinement is known for " + runtime.GOOS + " on " + runtime.GOARCH}
}

func (*host) run(_ context.Context, _ Tier, c Command) (Result, error) {
	return Result{}, &StartError{Argv0: c.Argv[0], Tier: TierD, Err: errors.ErrUnsupported}
}

// Child is the first line of main, and of TestMain where a test starts commands: in a process
// that keeps a command, it does so and does not return; in any other, it returns at once.
func Child() {}
