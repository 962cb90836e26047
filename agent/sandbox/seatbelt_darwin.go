package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// On macOS, the program sandbox-exec starts a command under a Seatbelt profile. This file was
// written from documentation and compiled, but never run.

const sandboxExec = "/usr/bin/sandbox-exec"

type host struct {
	scratch string // folder for temporary files of running commands; "" means the system's
	short   bool   // always false on this system
}

func newHost(scratch string) (*host, error) { return &host{scratch: scratch}, nil }

func (*host) close() error { return nil }

func (h *host) probe(ctx context.Context, most Tier) (Tier, []string) {
	reasons := []string{"tier A is for Linux"}
	if !most.AtLeast(TierLandlock) {
		return TierNone, []string{"nothing stronger than tier " + string(most) + " is wanted"}
	}
	if err := h.trial(ctx); err != nil {
		return TierNone, append(reasons, "tier B does not work: "+err.Error())
	}
	return TierLandlock, reasons
}

// trial starts a command. It returns an error if the command does not run, or if it could read a
// file outside its folders.
func (h *host) trial(ctx context.Context) error {
	outside, err := MkdirTemp(h.scratch, "sandbox")
	if err != nil {
		return err
	}
	defer os.RemoveAll(outside)

	canary, inside := filepath.Join(outside, "canary"), filepath.Join(outside, "inside")
	if err := errors.Join(os.WriteFile(canary, []byte("canary"), 0o600), os.Mkdir(inside, 0o700)); err != nil {
		return err
	}

	c, err := Command{Argv: []string{"/bin/sh", "-c", `test -w . && ! cat "$0"`, canary}, Dir: inside, Write: []string{inside}, Wall: 20 * time.Second}.validated()
	if err != nil {
		return err
	}

	res, err := h.run(ctx, TierLandlock, c)
	switch {
	case err != nil:
		return errors.Unwrap(err)
	case res.Exit != 0:
		return fmt.Errorf("a trial start ended with %d %s %s", res.Exit, res.Signal, res.KilledBy)
	}

	return nil
}

func (h *host) run(ctx context.Context, t Tier, c Command) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, &StartError{Argv0: c.Argv[0], Tier: t, Err: err} }
	l, err := newLayout(c)
	if err != nil {
		return fail(err)
	}

	path, err := findProgram(c, l.dir)
	if err != nil {
		return fail(err)
	}

	argv := append([]string{path}, c.Argv[1:]...)
	if t == TierLandlock && c.Temp == "" {
		temp, err := MkdirTemp(h.scratch, "sandbox")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(temp)

		l.write = append(l.write, temp)
		if !slices.ContainsFunc(c.Env, func(s string) bool { return strings.HasPrefix(s, "TMPDIR=") }) {
			c.Env = append(slices.Clone(c.Env), "TMPDIR="+temp)
		}
	}

	if t == TierLandlock {
		argv = append([]string{sandboxExec, "-p", profile(l, c.Network), "/bin/sh", "-c", ulimits(c.Limits) + `exec "$0" "$@"`}, argv...)
	}

	return startPlain(ctx, t, argv, l.dir, c)
}

// ulimits returns the limits that a shell sets before it executes the command. macOS does not
// enforce a limit of memory.
func ulimits(l Limits) string {
	return fmt.Sprintf("ulimit -c 0; ulimit -n %d; ulimit -f %d; ulimit -t %d; ", l.OpenFiles, (l.FileSize+511)/512, int(l.CPU.Seconds()))
}

// profile returns the Seatbelt profile of a command. The last matching rule applies.
func profile(l layout, network bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("(version 1)")
	line("(deny default)")
	line("(allow process-fork)")
	line("(allow process-exec)")
	line("(allow signal (target same-sandbox))")
	line("(allow sysctl-read)")
	line("(allow file-read-metadata)")
	line(`(allow file-read* (literal "/") (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom"))`)
	line(`(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))`)

	etc := []string{"/private/etc/passwd", "/private/etc/group", "/private/etc/ssl", "/private/etc/localtime", "/private/var/db/timezone", "/private/var/db/dyld"}
	for _, path := range slices.Concat(systemFolders, etc) {
		line("(allow file-read* (subpath %s))", quoted(path))
	}

	if network {
		line("(allow network-outbound (remote ip))")
		line("(allow network-bind (local ip))")
		line("(allow system-socket)")
		line(`(allow network-outbound (literal "/private/var/run/mDNSResponder"))`)
		line(`(allow file-read* (literal "/private/etc/hosts") (literal "/private/etc/resolv.conf") (literal "/private/var/run/resolv.conf"))`)
	}

	for _, grant := range seatbeltGrants(l) {
		line("%s", grant)
	}

	return b.String()
}

// seatbeltGrants returns the rules for a layout. Deeper paths come later, and for one path the mask
// comes last.
func seatbeltGrants(l layout) []string {
	type grant struct {
		path string
		rule string
	}
	var all []grant
	for _, path := range l.read {
		all = append(all, grant{path, fmt.Sprintf("(allow file-read* (subpath %s)) (deny file-write* (subpath %[1]s))", quoted(path))})
	}

	for _, path := range l.write {
		all = append(all, grant{path, fmt.Sprintf("(allow file-read* file-write* (subpath %s))", quoted(path))})
	}

	for _, m := range l.masks {
		all = append(all, grant{m.path, fmt.Sprintf("(deny file-read* file-write* (subpath %s))", quoted(m.path))})
	}

	slices.SortStableFunc(all, func(a, b grant) int { return strings.Compare(a.path, b.path) })
	var out []string
	for _, g := range all {
		out = append(out, g.rule)
	}

	for _, path := range l.pins() { // the folders above a mask must not be moved or removed
		out = append(out, fmt.Sprintf("(deny file-write-unlink (literal %s))", quoted(path)))
	}

	return out
}

func quoted(path string) string { return strconv.Quote(path) }

// maxRSS returns the maximum memory in bytes, which is the unit of this system.
func maxRSS(u *syscall.Rusage) int64 { return u.Maxrss }
