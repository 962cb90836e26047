package powercut_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rouse/internal/atomicfile"
	"rouse/internal/powercut"
)

// programIn is the environment variable that makes this binary the recorded program.
const programIn = "ROUSE_TEST_PROGRAM_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(programIn); dir != "" {
		if err := program(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// large spans many sectors with different contents.
func large(first byte) []byte {
	out := make([]byte, 20*512+7)
	for i := range out {
		out[i] = first + byte(i/512)
	}
	return out
}

// program writes files with and without syncs.
func program(dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	say := func(what string) error {
		_, err := os.Stdout.WriteString(what)
		return err
	}

	if err := errors.Join(atomicfile.Write(in("safe"), large('a'), 0o600), say("safe")); err != nil {
		return err
	}

	// Without a sync, and with a sync of the content only.
	f, err := os.Create(in("hasty"))
	if err != nil {
		return err
	}
	_, err = f.Write(large('a'))
	if err := errors.Join(err, say("hasty"), f.Sync(), say("unnamed"), f.Close(), say("closed")); err != nil {
		return err
	}

	// In a folder with an unsynced name.
	if err := errors.Join(os.Mkdir(in("new"), 0o700), atomicfile.Write(in("new/file"), large('b'), 0o600), say("in a new folder")); err != nil {
		return err
	}

	// A copy made by the kernel, written over the first file, truncated, and removed.
	from, err := os.Open(in("hasty"))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(in("safe"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Truncate(512), to.Sync(), say("cut"), to.Close(), os.Remove(in("safe"))); err != nil {
		return err
	}
	return say("end")
}

// Synced data is present after each cut. Unsynced data is complete, partial or missing in different
// states.
func TestStates(t *testing.T) {
	t.Parallel()
	if os.Getenv("ROUSE_TEST_POWERCUTS") == "" {
		t.Skip("ROUSE_TEST_POWERCUTS is not set; .ci/run sets it")
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "before"), []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	trace, err := powercut.Record(powercut.Options{Root: home, Program: os.Args[0], Env: append(os.Environ(), programIn+"="+home)})
	if errors.Is(err, powercut.ErrNotAllowed) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"safe", "hasty", "unnamed", "closed", "in a new folder", "cut", "end"}; !slices.Equal(trace.Said(trace.Len()), want) {
		t.Fatalf("said %q", trace.Said(trace.Len()))
	}

	seen := map[string]int{}
	for i := range 400 {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		cut := r.IntN(trace.Len() + 1)
		dir := t.TempDir()
		if err := trace.State(cut, r, dir); err != nil {
			t.Fatal(err)
		}

		read := func(name string) string {
			data, err := os.ReadFile(filepath.Join(dir, name))
			switch {
			case err != nil:
				return "missing"
			case bytes.Equal(data, large('a')), bytes.Equal(data, large('b')):
				return "whole"
			case bytes.Equal(data, large('a')[:512]):
				return "cut"
			}
			return "torn"
		}
		said := trace.Said(cut)
		if text, err := os.ReadFile(filepath.Join(dir, "before")); err != nil || string(text) != "as it was" {
			t.Fatalf("state %d: what was there before is %q, %v", i, text, err)
		}
		for _, name := range []string{"safe", "hasty", "new/file"} {
			seen[fmt.Sprintf("%s %s after %d", name, read(name), len(said))]++
		}
	}

	for _, want := range []string{
		"safe missing after 0", "safe whole after 1", "hasty missing after 2", "hasty torn after 2", "hasty whole after 2", "hasty missing after 3", "hasty whole after 3",
		"new/file missing after 5", "new/file whole after 5", "safe cut after 6", "safe missing after 7", "safe cut after 7",
	} {
		if seen[want] == 0 {
			t.Errorf("never seen: %s\n%v", want, seen)
		}
	}
	for _, never := range []string{"safe missing after 1", "safe torn after 1", "safe missing after 4", "hasty torn after 3", "new/file torn after 5", "safe whole after 6"} {
		if seen[never] > 0 {
			t.Errorf("%d times: %s", seen[never], never)
		}
	}
}
