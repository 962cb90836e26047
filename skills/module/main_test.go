package module_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/sandbox"
	"rouse/skills/module"
)

func TestMain(m *testing.M) {
	sandbox.Child()
	module.Child()
	os.Exit(m.Run())
}

// confined is shared by all tests, because probing the tiers is slow.
var confined = sync.OnceValues(func() (*sandbox.Sandbox, error) { return sandbox.New(sandbox.Options{}) })

// unraced skips a test that needs a module process if the race detector is on.
func unraced(t testing.TB) {
	t.Helper()
	if raced {
		t.Skip("it is done without the race detector")
	}
}

func newMachine(t testing.TB) *module.Machine {
	t.Helper()
	unraced(t)
	s, err := confined()
	if err != nil {
		t.Fatal(err)
	}
	if tier, lacks := s.Tier(t.Context()); tier == sandbox.TierNone {
		t.Skipf("modules run confined, and this machine confines nothing: %s", strings.Join(lacks, "; "))
	}

	m, err := module.New(module.Options{Sandbox: s, MinTier: sandbox.TierLimits})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// skill writes files to a new folder and returns it.
func skill(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// begun is the initial time of the module clock in tests.
var begun = time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)

// start starts a module with the given source.
func start(t testing.TB, text string, s module.Start) *module.Instance {
	t.Helper()
	m := newMachine(t)
	p, err := m.Compile(t.Context(), skill(t, map[string]string{"module.ts": text}))
	if err != nil {
		t.Fatal(err)
	}

	if s.Export == "" {
		s.Export = "execute"
	}
	if s.Now.IsZero() {
		s.Now = begun
	}
	i, err := m.Start(t.Context(), p, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

// next returns the next event. It fails the test on an error.
func next(t testing.TB, i *module.Instance, answers ...module.Answer) module.Event {
	t.Helper()
	e, err := i.Next(t.Context(), answers)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ended returns the end of the module. It fails the test if there is none.
func ended(t testing.TB, e module.Event) module.End {
	t.Helper()
	if e.End == nil {
		t.Fatalf("it goes on: %+v", e)
	}
	return *e.End
}

// run runs a module with the given source that makes no calls.
func run(t testing.TB, text string, s module.Start) module.End {
	t.Helper()
	return ended(t, next(t, start(t, text, s)))
}

// want checks the return value of a module.
func want(t testing.TB, end module.End, value string) {
	t.Helper()
	if end.Status != module.Returned || string(end.Value) != value {
		t.Errorf("it %s, and returned %s\nwant %s\n%s", end.String(), end.Value, value, end.Stack)
	}
}

// rawMessage keeps tables narrow.
type rawMessage = json.RawMessage

func raw(t testing.TB, v any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
