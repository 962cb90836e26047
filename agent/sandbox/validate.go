package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var defaultLimits = Limits{Memory: 2 << 30, Processes: 256, OpenFiles: 1024, FileSize: 1 << 30, CPU: time.Hour}

// validated returns the command with its defaults, or an error if the command is invalid.
func (c Command) validated() (Command, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return c, errors.New("sandbox: the command is empty")
	}

	fail := func(format string, args ...any) (Command, error) {
		return c, &StartError{Argv0: c.Argv[0], Err: fmt.Errorf(format, args...)}
	}
	for _, text := range slices.Concat(c.Argv, c.Env, c.Read, c.Write, c.ReadOnly, c.Masked, []string{c.Dir, c.Temp}) {
		if strings.ContainsRune(text, 0) {
			return fail("%q contains a zero byte, which no system passes on", text)
		}
	}

	for _, text := range c.Env {
		if strings.IndexByte(text, '=') <= 0 {
			return fail("%q is not an environment setting; write NAME=value", text)
		}
	}

	for _, path := range slices.Concat(c.Read, c.Write, c.ReadOnly, c.Masked, []string{c.Dir}) {
		if !filepath.IsAbs(path) {
			return fail("the path %q is not absolute", path)
		}
	}

	if c.Temp != "" && !filepath.IsAbs(c.Temp) {
		return fail("the path %q is not absolute", c.Temp)
	}

	if c.Self {
		var err error
		if c, err = c.withSelf(); err != nil {
			return fail("this program cannot be started again: %w", err)
		}
	}

	if c.MinTier == "" {
		c.MinTier = TierLandlock
	}
	if !c.MinTier.Valid() {
		return fail("there is no tier %q; tiers are A, B, C and D", c.MinTier)
	}
	if c.Wall < 0 || c.Idle < 0 {
		return fail("its timeouts are %s and %s; they cannot be negative", c.Wall, c.Idle)
	}

	limits, err := c.Limits.validated()
	if err != nil {
		return fail("%w", err)
	}

	c.Limits = limits
	for _, paths := range []*[]string{&c.Read, &c.Write, &c.ReadOnly, &c.Masked} {
		*paths = cleanPaths(*paths)
	}

	c.Dir = filepath.Clean(c.Dir)
	return c, nil
}

func (l Limits) validated() (Limits, error) {
	if l.Memory < 0 || l.Processes < 0 || l.OpenFiles < 0 || l.FileSize < 0 || l.CPU < 0 {
		return l, errors.New("a limit is below zero; leave it out to get the default")
	}

	if l.Memory == 0 {
		l.Memory = defaultLimits.Memory
	}

	if l.Processes == 0 {
		l.Processes = defaultLimits.Processes
	}

	if l.OpenFiles == 0 {
		l.OpenFiles = defaultLimits.OpenFiles
	}

	if l.FileSize == 0 {
		l.FileSize = defaultLimits.FileSize
	}

	if l.CPU == 0 {
		l.CPU = defaultLimits.CPU
	}

	// RLIMIT_CPU has a resolution of one second, and a minimum of one second.
	l.CPU = max(l.CPU.Round(time.Second), time.Second)
	return l, nil
}

// cleanPaths returns the cleaned paths without duplicates, sorted so that a folder precedes its
// contents.
func cleanPaths(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, path := range paths {
		out = append(out, filepath.Clean(path))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
