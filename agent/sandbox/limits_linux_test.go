//go:build amd64 || arm64

package sandbox_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rouse/agent/sandbox"
)

// hog takes memory, 600 MiB at most, and ends by itself after seconds.
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

// forks is a fork bomb that grows to 2⁷ processes, each of which ends by itself after seconds.
const forks = `f() { [ "$1" -eq 0 ] || { f $(($1-1)) & f $(($1-1)) & }; exec sleep 5; }; f 6`

func TestBombs(t *testing.T) {
	unraced(t)
	confined(t, func(t *testing.T, s *sandbox.Sandbox) {
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
	confined(t, func(t *testing.T, s *sandbox.Sandbox) {
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
