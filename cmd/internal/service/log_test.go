package service

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
)

// A log is rotated before it exceeds the limit, and the previous file is kept.
func TestLogRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.log")
	l, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	for range 25 {
		if n, err := l.Write(line); err != nil || n != len(line) {
			t.Fatal(n, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]int64{path: 5 << 20, path + ".1": 10 << 20} {
		if info, err := os.Stat(name); err != nil || info.Size() != want || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// tail prints the last lines of a log of any length.
func TestTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := tail(t.Context(), path, LogOptions{}); err == nil || !strings.Contains(err.Error(), "has not been started yet") {
		t.Error(err)
	}

	for _, size := range []int{0, 1, 2, 3, 20_000} {
		var all []string
		for i := range size {
			all = append(all, fmt.Sprintf("line %d\n", i))
		}
		for _, end := range []string{"", "cut off"} {
			if err := os.WriteFile(path, []byte(strings.Join(all, "")+end), 0o600); err != nil {
				t.Fatal(err)
			}
			lines := all
			if end != "" {
				lines = append(lines[:len(lines):len(lines)], end)
			}
			for _, n := range []int{0, 1, 2, 15_000, 30_000} {
				var out bytes.Buffer
				if err := tail(t.Context(), path, LogOptions{Lines: n, Out: &out}); err != nil {
					t.Fatal(err)
				}
				if want := strings.Join(lines[max(0, len(lines)-n):], ""); out.String() != want {
					t.Errorf("%d lines and %q, the last %d: %d bytes, want %d", size, end, n, out.Len(), len(want))
				}
			}
		}
	}
}

// tail prints lines added later, even after a rotation.
func TestTailFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.log")
	l, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	say := func(text string) {
		if _, err := l.Write([]byte(text + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	say("first")

	ctx, cancel := context.WithCancel(t.Context())
	var out cmdtest.Log
	over := make(chan error, 1)
	go func() { over <- tail(ctx, path, LogOptions{Lines: 1, Follow: true, Out: &out}) }()
	cmdtest.Until(t, "first", func() bool { return out.String() == "first\n" })
	say("second")
	cmdtest.Until(t, "second", func() bool { return out.String() == "first\nsecond\n" })
	say("third")
	l.mu.Lock()
	err = l.rotate()
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	say("fourth")
	cmdtest.Until(t, "fourth", func() bool { return out.String() == "first\nsecond\nthird\nfourth\n" })
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
