//go:build amd64 || arm64

package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rouse/agent/sandbox"
)

// maskCases are run by one command, each in its own folder.
var maskCases = []struct {
	name, script string
	out          string // expected output, apart from errors
	always       bool   // also on tier B, where new files cannot be created beside a hidden name
}{

	{"read a file", "cat AGENTS.md", "", true},
	{"write a file", "echo attacked > AGENTS.md", "", true},
	{"remove a file", "rm -f AGENTS.md", "", true},
	{"move a file away", "mv AGENTS.md x && cat x; echo attacked > AGENTS.md", "", true},
	{"move another over it", "echo attacked > dir/x; mv dir/x AGENTS.md", "", true},
	{"link it", "ln AGENTS.md dir/x; cat dir/x; echo attacked > dir/x", "", true},
	{"read in a folder", "cat skills/a/SKILL.md", "", true},
	{"write in a folder", "echo attacked > skills/a/SKILL.md; mkdir skills/b", "", true},
	{"move a folder away", "mv skills s2; mkdir skills && echo attacked > skills/x", "", true},
	{"make what is missing", "mkdir -p new; echo attacked > new; echo attacked > new/x; ln -s dir new", "", true},
	{"make what is missing, deeper", "mkdir -p dir/none/deep; echo attacked > dir/none/deep/x", "", true},
	{"move what is above it away", "mv dir d2; mkdir -p dir/sub && echo attacked > dir/sub/hidden", "", true},
	{"move what is above it away, deeper", "mv dir/sub dir/s2; mkdir dir/sub && echo attacked > dir/sub/hidden", "", true},
	{"read through a link", "ln -s ../AGENTS.md free/x; cat free/x", "", true},
	{"change what is beside", "cat beside; echo changed > beside; cat beside; echo x > free/x; cat free/x", "text\nchanged\nx\n", true},
	{"make what is beside", "echo x > fresh; cat fresh", "x\n", false},
	{"what is given within what is hidden", "cat skills/given/file; echo y > skills/given/file; cat skills/given/file", "text\ny\n", true},
	{"what may only be read within", "cat ro/file; echo x > ro/file; echo x > ro/new", "text\n", true},
	{"move what is above what may only be read", "mv held h2; mkdir -p held/ro && echo attacked > held/ro/file; cat held/ro/file", "text\n", true},
	{"move what is above a folder that is given twice", "mv twice t2; mkdir -p twice/inner/hidden && echo attacked > twice/inner/hidden/x", "", true},
}

func TestMasks(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		hidden := map[string]string{"AGENTS.md": "secret\n", "skills/a/SKILL.md": "secret\n", "dir/sub/hidden": "secret\n"}
		c, out := script(t, "")
		var all strings.Builder
		for i, test := range maskCases {
			dir := filepath.Join(c.Dir, strconv.Itoa(i))
			for name, text := range map[string]string{"beside": "text\n", "free/f": "text\n", "skills/given/file": "text\n", "ro/file": "text\n", "held/ro/file": "text\n", "twice/inner/f": "text\n"} {
				put(t, filepath.Join(dir, name), text)
			}

			for name, text := range hidden {
				put(t, filepath.Join(dir, name), text)
			}

			for _, name := range []string{"AGENTS.md", "skills", "new", "dir/none/deep/x", "dir/sub/hidden", "twice/inner/hidden"} {
				c.Masked = append(c.Masked, filepath.Join(dir, name))
			}

			c.Write = append(c.Write, dir, filepath.Join(dir, "skills/given"), filepath.Join(dir, "twice/inner"))
			c.Read = append(c.Read, filepath.Join(dir, "ro"), filepath.Join(dir, "held/ro"))
			fmt.Fprintf(&all, "cd %s; ( %s ); echo ==\n", dir, test.script)
		}

		c.Argv[2] = "exec 2>/dev/null\n" + all.String()
		run(t, s, c)
		tier, _ := s.Tier(t.Context())
		printed := strings.Split(out.String(), "==\n")
		for i, test := range maskCases {
			if printed[i] != test.out && (test.always || tier == sandbox.TierNamespaces) {
				t.Errorf("%s: it printed %q", test.name, printed[i])
			}

			for name, text := range hidden {
				if got, err := os.ReadFile(filepath.Join(c.Dir, strconv.Itoa(i), name)); err != nil || string(got) != text {
					t.Errorf("%s: %s holds %q, %v", test.name, name, got, err)
				}
			}

			for _, name := range []string{"new", "dir/none", "skills/b", "skills/x", "ro/new", "h2", "t2", "twice/inner/hidden"} {
				if _, err := os.Lstat(filepath.Join(c.Dir, strconv.Itoa(i), name)); err == nil {
					t.Errorf("%s: %s was made", test.name, name)
				}
			}
		}
	})
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMasksThatAreLinks checks that links on the way to a mask are rejected, because a command
// could change them.
func TestMasksThatAreLinks(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		c, _ := script(t, "cat AGENTS.md")
		if err := os.Symlink("elsewhere", filepath.Join(c.Dir, "AGENTS.md")); err != nil {
			t.Fatal(err)
		}

		c.Masked = []string{filepath.Join(c.Dir, "AGENTS.md")}
		if _, err := s.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestMasksAreShared checks that two commands with the same missing masked name both keep it
// hidden.
func TestMasksAreShared(t *testing.T) {
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		long, out := script(t, "echo begun; read line; mkdir new; echo attacked > new; :")
		long.Masked = []string{filepath.Join(long.Dir, "new")}
		short := long
		short.Argv, short.Stdout, short.Stderr = []string{"true"}, nil, nil
		begun, answer := make(chan struct{}), make(chan struct{})
		long.Stdin = waiting(answer)
		long.Stdout = writer(func([]byte) { close(begun) })
		done := make(chan error, 1)
		go func() {
			_, err := s.Run(t.Context(), long)
			done <- err
		}()
		<-begun
		run(t, s, short)
		close(answer)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(long.Masked[0]); err == nil {
			t.Errorf("it was made\n%s", out)
		}
	})
}

// TestMasksAreNotGiven checks that one command's placeholder is not granted to another command that
// may read the name. The placeholder would vanish with the first command, and the second could
// recreate it.
func TestMasksAreNotGiven(t *testing.T) {
	t.Parallel()
	s := only(t, sandbox.TierNamespaces)
	first, _ := script(t, "echo begun; read line")
	name := filepath.Join(first.Dir, "new")
	first.Masked = []string{name}
	second := first
	second.Argv = []string{"sh", "-c", "echo begun; read line; mkdir new; echo attacked > new/x; rmdir new; echo attacked > new; :"}
	second.Masked, second.Read = nil, []string{name}
	firstBegun, firstGoes, secondBegun, secondGoes := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	first.Stdin, first.Stdout, first.Stderr = waiting(firstGoes), writer(func([]byte) { close(firstBegun) }), nil
	second.Stdin, second.Stdout, second.Stderr = waiting(secondGoes), writer(func([]byte) { close(secondBegun) }), nil
	ended := make(chan error, 2)
	begin := func(c sandbox.Command) {
		go func() {
			_, err := s.Run(t.Context(), c)
			ended <- err
		}()
	}

	begin(first)
	<-firstBegun
	begin(second)
	<-secondBegun
	close(firstGoes)
	err := <-ended
	close(secondGoes)
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(name); err == nil {
		t.Errorf("it was made: %s", info.Mode())
	}
}

// TestMasksOfManyCommands checks that concurrent commands with the same missing masked names do not
// remove each other's placeholders.
func TestMasksOfManyCommands(t *testing.T) {
	t.Parallel()
	unraced(t)
	s := only(t, sandbox.TierNamespaces)
	c, _ := script(t, "")
	c.Argv, c.Stdout, c.Stderr = []string{"true"}, nil, nil
	c.Masked = []string{filepath.Join(c.Dir, "new"), filepath.Join(c.Dir, "folder", "new")}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if res, err := s.Run(t.Context(), c); err != nil || res.Exit != 0 {
					t.Errorf("%+v: %v", res, err)
					return
				}
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
		t.Errorf("what was covered is left behind: %v %v", left, err)
	}
}

// waiting is a reader that returns a line after the channel was closed.
type waiting chan struct{}

func (w waiting) Read(b []byte) (int, error) {
	<-w
	return copy(b, "line\n"), nil
}
