//go:build unix && !darwin && !(linux && (amd64 || arm64))

package sandbox

import (
	"context"
	"runtime"
	"syscall"
)

// host provides no confinement.
type host struct {
	short bool // always false on this system
}

func newHost(string) (*host, error) { return &host{}, nil }

func (*host) close() error { return nil }

func (*host) probe(context.Context, Tier) (Tier, []string) {
	return TierNone, []string{"no confinement is known for " + runtime.GOOS + " on " + runtime.GOARCH}
}

func (*host) run(ctx context.Context, t Tier, c Command) (Result, error) {
	path, err := findProgram(c, c.Dir)
	if err != nil {
		return Result{}, &StartError{Argv0: c.Argv[0], Tier: t, Err: err}
	}
	return startPlain(ctx, t, append([]string{path}, c.Argv[1:]...), c.Dir, c)
}

// maxRSS returns the maximum memory in bytes. These systems count kilobytes.
func maxRSS(u *syscall.Rusage) int64 { return int64(u.Maxrss) << 10 }
