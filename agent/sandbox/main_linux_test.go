//go:build amd64 || arm64

package sandbox_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/sandbox"
)

// roleKey is the environment variable with the role of this binary when a test starts it again.
const roleKey = "ROUSE_TEST_ROLE"

var roles = map[string]func(){"attacker": attacker, "caller": caller, "hog": hog, "daemon": daemon, "self": func() { fmt.Print("again") }}

func TestMain(m *testing.M) {
	sandbox.Child()
	if role := roles[os.Getenv(roleKey)]; role != nil {
		role()
		os.Exit(0)
	}

	// These tests mostly wait for processes and timeouts, so more of them can run in parallel than
	// there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// eachTier runs a test on each tier of this machine, in parallel with others.
func eachTier(t *testing.T, each func(t *testing.T, s *sandbox.Sandbox)) {
	t.Parallel()
	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		t.Run("tier "+string(tier), func(t *testing.T) {
			t.Parallel()
			each(t, only(t, tier))
		})
	}
}

// eachTierAlone runs a test on each tier of this machine, without parallel tests.
func eachTierAlone(t *testing.T, each func(t *testing.T, s *sandbox.Sandbox)) {
	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		t.Run("tier "+string(tier), func(t *testing.T) { each(t, only(t, tier)) })
	}
}

// unraced skips a test of other programs' processes under the race detector, which cannot find
// races there.
func unraced(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("it is done without the race detector")
	}
}

// sandboxes are shared by all tests, because probing a tier takes longer than most commands.
var sandboxes = map[sandbox.Tier]func() (*sandbox.Sandbox, error){
	sandbox.TierNamespaces: sync.OnceValues(func() (*sandbox.Sandbox, error) { return sandbox.New(sandbox.Options{MaxTier: sandbox.TierNamespaces}) }),
	sandbox.TierLandlock:   sync.OnceValues(func() (*sandbox.Sandbox, error) { return sandbox.New(sandbox.Options{MaxTier: sandbox.TierLandlock}) }),
}

// only returns a sandbox with exactly that tier.
func only(t *testing.T, tier sandbox.Tier) *sandbox.Sandbox {
	t.Helper()
	s, err := sandboxes[tier]()
	if err != nil {
		t.Fatal(err)
	}

	if have, lacks := s.Tier(t.Context()); have != tier {
		t.Skipf("tier %s is not available here: %s", tier, strings.Join(lacks, "; "))
	}
	return s
}

const path = "PATH=/usr/local/bin:/usr/bin:/bin"

// script returns a command in a writable folder.
func script(t *testing.T, text string) (sandbox.Command, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	dir := t.TempDir()
	return sandbox.Command{Argv: []string{"sh", "-c", text}, Dir: dir, Write: []string{dir}, Env: []string{path}, Stdout: &out, Stderr: &out}, &out
}

// again returns a command that runs this test binary in a role.
func again(t *testing.T, role string, env ...string) (sandbox.Command, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	c, out := script(t, "")
	c.Argv, c.Read, c.Env = []string{exe}, []string{exe}, append([]string{path, roleKey + "=" + role}, env...)
	return c, out
}

func run(t *testing.T, s *sandbox.Sandbox, c sandbox.Command) sandbox.Result {
	t.Helper()
	res, err := s.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// bearing returns the processes of this machine with a mark in their command line.
func bearing(mark string) (pids []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if text, err := os.ReadFile(line); err == nil && strings.Contains(string(text), mark) {
			pids = append(pids, filepath.Base(filepath.Dir(line)))
		}
	}
	return pids
}

// count returns the number of repetitions: usual, unless the environment variable key sets another
// number.
func count(t *testing.T, key string, usual int) int {
	t.Helper()
	text := os.Getenv(key)
	if text == "" {
		return usual
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return n
}

// daemon runs a command from another process of this binary after its file was removed.
func daemon() {
	err := func() error {
		s, err := sandbox.New(sandbox.Options{MaxTier: sandbox.Tier(os.Getenv("TIER"))})
		if err != nil {
			return err
		}
		if err := os.Remove(os.Getenv("BINARY")); err != nil {
			return err
		}

		dir := os.Getenv("DIR")
		c := sandbox.Command{Argv: []string{"sh", "-c", os.Getenv("SCRIPT")}, Dir: dir, Write: []string{dir}, Env: []string{path},
			Stdout: os.Stdout, Stderr: os.Stderr, Wall: 30 * time.Second}
		if os.Getenv("SCRIPT") == "" {
			c.Self, c.Env = true, []string{roleKey + "=self"}
		}
		res, err := s.Run(context.Background(), c)
		if err == nil && res.Exit != 0 {
			err = fmt.Errorf("%+v", res)
		}

		return err
	}()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
