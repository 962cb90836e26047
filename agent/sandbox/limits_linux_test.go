//go:build amd64 || arm64

package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rouse/agent/sandbox"
)

// hog allocates at most 600 MiB, and ends by itself after some seconds.
func hog() {
	flags, _ := strconv.Atoi(os.Getenv("FLAGS"))
	for range 60 {
		b, err := unix.Mmap(-1, 0, 10<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|flags)
		if err != nil {
			break
		}

		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}

		time.Sleep(10 * time.Millisecond)
	}

	time.Sleep(5 * time.Second)
}

// forks is a fork bomb that grows to 2⁷ processes. Each process ends by itself after some seconds.
const forks = `f() { [ "$1" -eq 0 ] || { f $(($1-1)) & f $(($1-1)) & }; exec sleep 5; }; f 6`

func TestBombs(t *testing.T) {
	unraced(t)
	each := eachTier
	if os.Getuid() != 0 {
		// The kernel's limit counts all threads of a user. With concurrent tests a bomb would end
		// at that limit and not at its own.
		each = eachTierAlone
	}
	each(t, func(t *testing.T, s *sandbox.Sandbox) {
		for n := range count(t, "ROUSE_TEST_BOMBS", 1) {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				bomb(t, s)
			})
		}
	})
}

func bomb(t *testing.T, s *sandbox.Sandbox) {
	for name, flags := range map[string]int{"private": unix.MAP_PRIVATE, "shared": unix.MAP_SHARED} {
		c, out := again(t, "hog", "FLAGS="+strconv.Itoa(flags))
		c.Limits = sandbox.Limits{Memory: 100 << 20}
		if res := run(t, s, c); res.KilledBy != sandbox.KilledByMemory || res.Exit == 0 {
			t.Errorf("%s memory: %+v\n%s", name, res, out)
		}
	}

	c, out := script(t, forks)
	c.Limits = sandbox.Limits{Processes: 30}
	if res := run(t, s, c); res.KilledBy != sandbox.KilledByProcesses {
		t.Errorf("forks: %+v\n%s", res, out)
	}
}

func TestLimits(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		for _, test := range []struct {
			name, script string
			limits       sandbox.Limits
			signal       string
		}{
			{"file size", "exec dd if=/dev/zero of=large bs=64k count=100 2>/dev/null", sandbox.Limits{FileSize: 1 << 20}, "SIGXFSZ"},
			{"CPU", "while :; do :; done", sandbox.Limits{CPU: time.Second}, "SIGXCPU"},
			{"no core dump", "ulimit -c; [ $(ulimit -c) = 0 ] && kill -SEGV $$", sandbox.Limits{}, "SIGSEGV"},
			{"open files", "[ $(ulimit -n) = 20 ] && kill -USR1 $$", sandbox.Limits{OpenFiles: 20}, "SIGUSR1"},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				c, out := script(t, test.script)
				c.Limits = test.limits
				if res := run(t, s, c); res.Signal != test.signal || res.Exit != -1 || res.KilledBy != "" {
					t.Errorf("it ended with %+v\n%s", res, out)
				}
			})
		}
	})
}

// TestSupervisorGetsItsLimitsBack checks that a command's soft limits apply to its supervisor only
// until the command has started.
func TestSupervisorGetsItsLimitsBack(t *testing.T) {
	unraced(t)
	eachTier(t, func(t *testing.T, s *sandbox.Sandbox) {
		c, _ := script(t, "echo started; exec sleep 60 MARK")
		mark := fmt.Sprintf("61.%d", time.Now().UnixNano())
		c.Argv[2] = strings.ReplaceAll(c.Argv[2], "MARK", mark)
		c.Limits = sandbox.Limits{Memory: 300 << 20, Processes: 11}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		done := make(chan error, 1)
		go func() {
			_, err := s.Run(ctx, c)
			done <- err
		}()
		data := func(pid int) string {
			var now unix.Rlimit
			err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &now)
			return fmt.Sprint(now.Cur, err)
		}
		own := data(0)
		until(t, "a supervisor with its own limits around a command with less", func() bool {
			for _, pid := range bearing(mark) {
				n, _ := strconv.Atoi(pid)
				if parent := parentOf(n); parent > 0 && data(n) == "629145600 <nil>" && data(parent) == own {
					return true
				}
			}
			return false
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// parentOf returns the parent of a process, or 0 if the process has ended.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// TestShortOfFiles checks that a trial without free file descriptors does not decide on the tier.
// The next trial does.
func TestShortOfFiles(t *testing.T) {
	s, err := sandbox.New(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 8, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	tier, reasons := s.Tier(t.Context())
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}

	if tier != sandbox.TierNone || !strings.Contains(strings.Join(reasons, ""), "too many open files") {
		t.Errorf("%s: %s", tier, reasons)
	}
	if tier, reasons := s.Tier(t.Context()); tier == sandbox.TierNone {
		t.Errorf("%s: %s", tier, reasons)
	}
}
