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

// confined is shared by all tests: probing the tiers takes longer than most modules.
var confined = sync.OnceValues(func() (*sandbox.Sandbox, error) { return sandbox.New(sandbox.Options{}) })

// unraced skips a test that needs the process of a module.
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
	if tier, lacks := s.Tier(t.Context()); tier == sandbox.TierD {
		t.Skipf("modules run confined, and this machine confines nothing: %s", strings.Join(lacks, "; "))
	}

	m, err := module.New(module.Options{Sandbox: s, MinTier: sandbox.TierC})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// skill writes files and gives their folder.
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

// begun is when the modules of tests begin, by their clock.
var begun = time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)

// start starts the text of a module.
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

// next expects an event.
func next(t testing.TB, i *module.Instance, answers ...module.Answer) module.Event {
	t.Helper()
	e, err := i.Next(t.Context(), answers)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ended expects the end.
func ended(t testing.TB, e module.Event) module.End {
	t.Helper()
	if e.End == nil {
		t.Fatalf("it goes on: %+v", e)
	}
	return *e.End
}

// run runs the text of a module that calls nothing.
func run(t testing.TB, text string, s module.Start) module.End {
	t.Helper()
	return ended(t, next(t, start(t, text, s)))
}

// want expects what a module returned.
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
