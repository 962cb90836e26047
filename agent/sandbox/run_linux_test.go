//go:build amd64 || arm64

package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rouse/agent/sandbox"
)

func TestResults(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		for _, test := range []struct {
			script, stdin, out string
			exit               int
			signal             string
		}{
			{"exit 0", "", "", 0, ""},
			{"exit 137", "", "", 137, ""}, // an exit code, not a signal
			{"kill -KILL $$", "", "", -1, "SIGKILL"},
			{"echo one; echo two >&2; echo three", "", "one\ntwo\nthree\n", 0, ""},
			{"cat", "", "", 0, ""}, // the input is empty
			{"tr a-z A-Z", "text", "TEXT", 0, ""},
			{"echo a > file; mkdir d; mv file d/; cat d/file; rm -r d; ls", "", "a\n", 0, ""},
			{`printf '#!/bin/sh\necho script\n' > "$TMPDIR/x" || exit 1; sh "$TMPDIR/x"`, "", "script\n", 0, ""},
			{"sleep 60 & echo started", "", "started\n", 0, ""}, // Run does not wait for it
			{"[ -e /etc/shadow ] && cat /etc/shadow; echo denied", "", "denied\n", 0, ""},
			{"(echo a | cat; echo b) | cat", "", "a\nb\n", 0, ""},
		} {
			t.Run(test.script, func(t *testing.T) {
				t.Parallel()
				c, out := script(t, test.script)
				if s, _ := s.Tier(t.Context()); s == sandbox.TierNamespaces {
					c.Env = append(c.Env, "TMPDIR=/tmp")
				}

				if test.stdin != "" {
					c.Stdin = strings.NewReader(test.stdin)
				}

				res := run(t, s, c)
				got := strings.ReplaceAll(out.String(), "cat: /etc/shadow: Permission denied\n", "")
				if res.Exit != test.exit || res.Signal != test.signal || res.KilledBy != "" || got != test.out {
					t.Errorf("it ended with %+v\n%s", res, out)
				}
			})
		}
	})
}

// TestOrdinaryPrograms checks that programs work if they change modes and times, which tier B only
// pretends to do.
func TestOrdinaryPrograms(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		for name, text := range map[string]string{
			"git":     "HOME=$PWD; export HOME; git init -q . && git config user.email a@b && git config user.name n && echo x > f && git add f && git commit -qm text && git log --format=%s",
			"tar":     "echo text > f && tar cf a.tar f && mkdir d && tar xf a.tar -C d && cat d/f",
			"python3": `python3 -c 'import tempfile, subprocess; tempfile.mkstemp(); print(subprocess.check_output(["echo", "text"], text=True), end="")'`,
			"bash":    "bash -c 'cat <(echo text)'",
		} {
			t.Run(name, func(t *testing.T) {
				if _, err := exec.LookPath(name); err != nil {
					t.Skip(name + " is not installed")
				}
				c, out := script(t, text)
				if res := run(t, s, c); res.Exit != 0 || out.String() != "text\n" {
					t.Errorf("it ended with %+v\n%s", res, out)
				}
			})
		}
	})
}

func TestEnvironmentIsWhatItWasGiven(t *testing.T) {
	unraced(t)
	eachTierAlone(t, func(t *testing.T, s *sandbox.Sandbox) {
		t.Setenv("ROUSE_TEST_SECRET", "canary")
		c, out := script(t, "exec env")
		c.Env = append(c.Env, "A=1\n2")
		run(t, s, c)
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(out.String()), "\n"), func(l string) bool {
			return strings.HasPrefix(l, "PWD=") || strings.HasPrefix(l, "TMPDIR=")
		})
		if slices.Sort(lines); !slices.Equal(lines, []string{"2", "A=1", path}) {
			t.Errorf("its environment is %q", lines)
		}
	})
}

func TestCannotStart(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		dir := t.TempDir()
		for name, text := range map[string]string{"nearby": "#!/bin/sh\n", "plain": "no program"} {
			mode := os.FileMode(0o755)
			if name == "plain" {
				mode = 0o644
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}

		for _, test := range []struct {
			name   string
			change func(c *sandbox.Command)
			is     error
			says   string
		}{
			{"unknown", func(c *sandbox.Command) { c.Argv = []string{"no-such-program"} }, exec.ErrNotFound, "no-such-program"},
			{"only in the working folder", func(c *sandbox.Command) { c.Argv = []string{"nearby"}; c.Env = []string{"PATH=.::/usr/bin"} }, exec.ErrNotFound, "nearby"},
			{"not executable", func(c *sandbox.Command) { c.Argv = []string{"./plain"} }, fs.ErrPermission, "plain"},
			{"no folder", func(c *sandbox.Command) { c.Dir = dir + "/none" }, fs.ErrNotExist, "working folder"},
			{"nothing to write", func(c *sandbox.Command) { c.Write = append(c.Write, dir+"/none") }, fs.ErrNotExist, "may write"},
			{"relative", func(c *sandbox.Command) { c.Read = []string{"etc"} }, nil, "not absolute"},
			{"environment", func(c *sandbox.Command) { c.Env = []string{"=x"} }, nil, "NAME=value"},
			{"zero byte", func(c *sandbox.Command) { c.Argv = append(c.Argv, "a\x00b") }, nil, "zero byte"},
			{"tier", func(c *sandbox.Command) { c.MinTier = "E" }, nil, "there is no tier"},
			{"limit", func(c *sandbox.Command) { c.Limits.Memory = -1 }, nil, "below zero"},
		} {
			t.Run(test.name, func(t *testing.T) {
				c := sandbox.Command{Argv: []string{"true"}, Dir: dir, Write: []string{dir}, Env: []string{path}}
				test.change(&c)
				_, err := s.Run(t.Context(), c)
				var start *sandbox.StartError
				if !errors.As(err, &start) || (test.is != nil && !errors.Is(err, test.is)) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("the error is %v", err)
				}
			})
		}

		c := sandbox.Command{Argv: []string{"./nearby"}, Dir: dir, Write: []string{dir}, Env: []string{path}}
		if res := run(t, s, c); res.Exit != 0 {
			t.Errorf("a program named by its path ended with %+v", res)
		}
	})
}

func TestWeakerTierStartsNothing(t *testing.T) {
	t.Parallel()
	for _, most := range []sandbox.Tier{sandbox.TierLandlock, sandbox.TierNone} {
		s, err := sandbox.New(sandbox.Options{MaxTier: most})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()

		have, lacks := s.Tier(t.Context())
		dir := t.TempDir()
		for _, min := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierNone} {
			_, err := s.Run(t.Context(), sandbox.Command{Argv: []string{"touch", "started"}, Dir: dir, Write: []string{dir}, Env: []string{path}, MinTier: min})
			var weak *sandbox.TierError
			wanted := have == sandbox.TierNone || min == sandbox.TierNamespaces
			if errors.As(err, &weak) != wanted || (wanted && (weak.Have != have || !slices.Equal(weak.Reasons, lacks))) {
				t.Errorf("tier %s for %s: %v", have, min, err)
			}
			if _, err := os.Stat(dir + "/started"); (err == nil) == wanted {
				t.Errorf("tier %s for %s: started: %v", have, min, err)
			}
		}
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	s, err := sandbox.New(sandbox.Options{OffReason: "a trial"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	c, out := script(t, "echo here; exit 4")
	c.MinTier = sandbox.TierNamespaces
	if res := run(t, s, c); res.Exit != 4 || res.Tier != sandbox.TierNone || out.String() != "here\n" {
		t.Errorf("it ended with %+v\n%s", res, out)
	}
	if _, err := sandbox.New(sandbox.Options{OffReason: " "}); err == nil {
		t.Error("it can be off without a reason")
	}
}

// trees are commands with processes that resist their end.
var trees = map[string]string{
	"deaf":     `trap '' TERM HUP INT; sleep 60 MARK & wait; sleep 60 MARK`,
	"session":  `trap '' TERM; setsid sh -c 'trap "" TERM; sleep 60 MARK & wait'`,
	"detached": `(setsid sh -c '(trap "" TERM HUP; exec sleep 60 MARK) &' &) ; sleep 60 MARK`,
	"stopped":  `sleep 60 MARK & kill -STOP $!; sleep 60 MARK`,
}

// TestTreesEnd checks that each tree ends after its timeout without remaining processes. It logs
// the longest delay, but does not check the two seconds, which a busy machine could exceed.
func TestTreesEnd(t *testing.T) {
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		var latest atomic.Int64
		t.Cleanup(func() { t.Logf("the latest tree was gone %s after its deadline", time.Duration(latest.Load())) })

		for name, text := range trees {
			for n := range (count(t, "ROUSE_TEST_TREES", len(trees)) + len(trees) - 1) / len(trees) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					mark := fmt.Sprintf("61.%d%d", time.Now().UnixNano(), n)
					c, out := script(t, strings.ReplaceAll(text, "MARK", mark))
					c.Wall = 300 * time.Millisecond
					begin := time.Now()
					res := run(t, s, c)
					if res.KilledBy != sandbox.KilledByWall {
						t.Errorf("it ended with %+v\n%s", res, out)
					}

					late := int64(time.Since(begin) - c.Wall)
					for last := latest.Load(); late > last && !latest.CompareAndSwap(last, late); last = latest.Load() {
					}
					if left := bearing(mark); len(left) > 0 {
						t.Errorf("the processes %v are left", left)
					}
				})
			}
		}
	})
}

func TestWhatIsLeftInTheBackgroundEnds(t *testing.T) {
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		mark := fmt.Sprintf("61.%d", time.Now().UnixNano())
		c, out := script(t, strings.ReplaceAll(`(setsid sleep 60 MARK &); sleep 60 MARK & exit 7`, "MARK", mark))
		if res := run(t, s, c); res.Exit != 7 || res.KilledBy != "" {
			t.Errorf("it ended with %+v\n%s", res, out)
		}
		if left := bearing(mark); len(left) > 0 {
			t.Errorf("the processes %v are left", left)
		}
	})
}

func TestClocks(t *testing.T) {
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		for _, test := range []struct {
			name, script, killedBy string
			exit                   int
			change                 func(c *sandbox.Command)
		}{
			{"idle", "echo a; sleep 60", sandbox.KilledByIdle, -1, func(c *sandbox.Command) { c.Idle = 300 * time.Millisecond }},
			{"not idle", "for i in 1 2 3 4 5 6; do sleep 0.1; echo $i; done", "", 0, func(c *sandbox.Command) { c.Idle = 5 * time.Second }},
			{"before it begins", "sleep 60", sandbox.KilledByWall, -1, func(c *sandbox.Command) { c.Wall = time.Nanosecond }},
			{"asked", "trap 'echo bye; exit 5' TERM; echo a; sleep 60 & wait", sandbox.KilledByWall, 5, func(c *sandbox.Command) { c.Wall = 2 * time.Second }},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				c, out := script(t, test.script)
				test.change(&c)
				if res := run(t, s, c); res.KilledBy != test.killedBy || res.Exit != test.exit {
					t.Errorf("it ended with %+v\n%s", res, out)
				}
			})
		}
		t.Run("cancelled", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			c, _ := script(t, "echo begun; sleep 60")
			c.Stdout = writer(func(b []byte) { cancel() })
			if res, err := s.Run(ctx, c); err != nil || res.KilledBy != sandbox.KilledByCancel {
				t.Errorf("it ended with %+v, %v", res, err)
			}
			if _, err := s.Run(ctx, c); !errors.Is(err, context.Canceled) {
				t.Errorf("afterwards: %v", err)
			}
		})
	})
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func TestFlood(t *testing.T) {
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		c, _ := script(t, "yes & yes >&2")
		n := 0
		c.Stdout = writer(func(b []byte) {
			if n += len(b); n > 50<<20 {
				cancel()
			}
		})

		c.Stderr = c.Stdout
		c.Limits.Memory = 100 << 20
		if res, err := s.Run(ctx, c); err != nil || res.KilledBy != sandbox.KilledByCancel {
			t.Errorf("it ended with %+v, %v", res, err)
		}
	})
}

// TestDaemonThatIsKilled checks that a killed daemon leaves no processes, and that a daemon can
// start commands after its file was replaced.
func TestDaemonThatIsKilled(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		tier, _ := s.Tier(t.Context())
		mark := fmt.Sprintf("61.%d", time.Now().UnixNano())
		cmd := upgraded(t, tier, "trap '' TERM HUP; sleep 60 "+mark+" & setsid sleep 60 "+mark)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}

		until(t, "two processes", func() bool { return len(bearing(mark)) >= 2 })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}

		_ = cmd.Wait() // it was killed
		until(t, "their end", func() bool { return len(bearing(mark)) == 0 })
	})
}

func TestBinaryThatWasReplaced(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		tier, _ := s.Tier(t.Context())
		if out, err := upgraded(t, tier, "echo fine").CombinedOutput(); err != nil || string(out) != "fine\n" {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// TestSelf checks that this binary can be started without a grant, even if its file has no name.
func TestSelf(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		var out bytes.Buffer
		c := sandbox.Command{Self: true, Argv: []string{"rouse"}, Dir: "/", Env: []string{roleKey + "=self"}, Stdout: &out, Stderr: &out}
		if res := run(t, s, c); res.Exit != 0 || out.String() != "again" {
			t.Errorf("%+v: %s", res, out.String())
		}

		tier, _ := s.Tier(t.Context())
		if out, err := upgraded(t, tier, "").CombinedOutput(); err != nil || string(out) != "again" {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// upgraded returns another process of this binary, which removes its file. It then runs a script,
// or itself if there is no script.
func upgraded(t *testing.T, tier sandbox.Tier, text string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	copied := filepath.Join(t.TempDir(), "copied")
	if out, err := exec.Command("cp", exe, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	cmd := exec.CommandContext(t.Context(), copied)
	cmd.Env = append(os.Environ(), roleKey+"=daemon", "TIER="+string(tier), "BINARY="+copied, "DIR="+t.TempDir(), "SCRIPT="+text)
	return cmd
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// TestTemp checks that files in the temporary folders of a command's view are in the caller's
// folder.
func TestTemp(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		c, out := script(t, `echo one > "$TMPDIR/a" && { [ "$VIEW" = B ] || { echo two > /tmp/b; echo three > /dev/shm/c; }; }`)
		tier, _ := s.Tier(t.Context())
		c.Temp = t.TempDir()
		c.Write, c.Env = append(c.Write, c.Temp), append(c.Env, "TMPDIR="+c.Temp, "VIEW="+string(tier))
		run(t, s, c)

		left, err := os.ReadDir(c.Temp)
		if want := map[sandbox.Tier]int{sandbox.TierNamespaces: 3, sandbox.TierLandlock: 1}[tier]; err != nil || len(left) < want {
			t.Errorf("%v %v\n%s", left, err, out)
		}
	})
}

// TestScratch checks that all temporary files of a running command are in the scratch folder, which
// is cleaned up after a kill.
func TestScratch(t *testing.T) {
	unraced(t)
	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		t.Run("tier "+string(tier), func(t *testing.T) {
			elsewhere := t.TempDir()
			t.Setenv("TMPDIR", elsewhere)
			scratch := filepath.Join(t.TempDir(), "commands")
			s, err := sandbox.New(sandbox.Options{MaxTier: tier, Scratch: scratch})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()

			// Creating files elsewhere fails.
			if err := os.Remove(elsewhere); err != nil {
				t.Fatal(err)
			}
			if have, why := s.Tier(t.Context()); have != tier {
				t.Skipf("tier %s is not available here: %v", tier, why)
			}

			dir := filepath.Join(scratch, "work")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			run(t, s, sandbox.Command{Argv: []string{"sh", "-c", `echo "$TMPDIR"`}, Dir: dir, Write: []string{dir}, Env: []string{path}, Stdout: &out})
			if tier == sandbox.TierLandlock && !strings.HasPrefix(out.String(), scratch) {
				t.Errorf("its temporary files are in %s", out.String())
			}
			if left, _ := filepath.Glob(filepath.Join(scratch, "rouse-*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	eachTierAlone(t, func(t *testing.T, s *sandbox.Sandbox) {
		open := func() int {
			entries, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(entries)
		}

		one := func() {
			c, _ := script(t, "sleep 60 & exit 0")
			c.Stdin = strings.NewReader("text")
			run(t, s, c)
			c.Argv = []string{"no-such-program"}
			if _, err := s.Run(t.Context(), c); err == nil {
				t.Fatal("it was started")
			}
		}

		one()
		files, routines := open(), runtime.NumGoroutine()
		for range 5 {
			one()
		}

		until(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= routines })
		if now := open(); now > files {
			t.Errorf("%d files are open, and %d were", now, files)
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "rouse-sandbox-*")); len(left) > 0 && os.Getenv("TMPDIR") != "" {
			t.Errorf("the folders %v are left", left)
		}
	})
}

// TestAsOrdinaryUser runs other tests as the user nobody, because root may be confined differently.
func TestAsOrdinaryUser(t *testing.T) {
	unraced(t)
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become nobody")
	}

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	const nobody = 65534
	home, err := os.MkdirTemp("", "rouse-nobody-") //nolint:usetesting // the user nobody cannot enter the folder of t.TempDir
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(home) })
	if out, err := exec.Command("cp", exe, filepath.Join(home, "copied")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.Chmod(home, 0o755), os.Chown(home, nobody, nobody)); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), filepath.Join(home, "copied"), "-test.run", "^Test(Attacks|Masks|Bombs|TreesEnd|WhatIsLeft.*|NothingIsLeftOpen|DaemonThatIsKilled|NetworkThat.*)$",
		"-test.v="+strconv.FormatBool(testing.Verbose()))
	cmd.Dir, cmd.Env = home, []string{path, "TMPDIR=" + home, "HOME=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

// TestNiceDaemon checks that a daemon with a high nice value can start confined commands.
func TestNiceDaemon(t *testing.T) {
	if os.Getenv("ROUSE_TEST_NICE") == "" {
		again := exec.Command("nice", "-n", "12", os.Args[0], "-test.run=^TestNiceDaemon$")
		again.Env = append(os.Environ(), "ROUSE_TEST_NICE=yes")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	eachTierAlone(t, func(t *testing.T, s *sandbox.Sandbox) {
		c, out := script(t, "nice")
		if res := run(t, s, c); res.Exit != 0 || len(strings.TrimSpace(out.String())) != 2 {
			t.Errorf("%+v\n%s", res, out)
		}
	})
}
