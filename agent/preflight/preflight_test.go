package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/nofollow"
)

// TestProber checks that only Again repeats a check with a problem, and that a good finding is
// checked once a second.
func TestProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, looks, wrong := New(), 0, "gone"
		ask := func() string {
			return p.Look("folder", func() string { looks++; return wrong })
		}
		for range 10_000 {
			if ask() != "gone" {
				t.Fatal("it is not told")
			}
		}
		if looks != 1 {
			t.Errorf("%d looks for 10,000 questions", looks)
		}

		if cleared, rest := p.Again(); cleared || looks != 2 || rest != leastRest {
			t.Errorf("again: %v, %d looks, rests %s", cleared, looks, rest)
		}
		wrong = ""
		if cleared, _ := p.Again(); !cleared || ask() != "" || looks != 3 {
			t.Errorf("it is there again: %d looks", looks)
		}
		if cleared, _ := p.Again(); cleared || looks != 3 {
			t.Error("what is right is looked at again")
		}

		wrong = "gone"
		if ask() != "" {
			t.Error("it is not kept for a second")
		}
		if time.Sleep(goodFor); ask() != "gone" {
			t.Error("it is kept for longer")
		}
		time.Sleep(forgetAfter + time.Second)
		if looks = 0; len(p.wrong(time.Now())) != 0 {
			t.Error("what nobody asks for is looked at")
		}
	})
}

// TestLookThatHangs checks that a check with a timeout does not block, and that its result is used
// later.
func TestLookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, answer := New(), make(chan string)
		look := func() string { return <-answer }
		begin := time.Now()
		for range 1000 {
			if why := p.Look("server", look); why != "" {
				t.Fatal(why)
			}
		}
		if took := time.Since(begin); took > answerWithin {
			t.Errorf("a thousand questions took %s", took)
		}
		answer <- "gone"
		synctest.Wait()
		if why := p.Look("server", look); why != "gone" {
			t.Errorf("then it says %q", why)
		}
	})
}

// TestRest checks that the rest is a hundred times the duration of the checks.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		slow := func() string { time.Sleep(100 * time.Millisecond); return "gone" }
		p.Look("a", slow)
		if _, rest := p.Again(); rest != 10*time.Second {
			t.Errorf("it rests %s", rest)
		}
	})
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"agent/own", "elsewhere"} {
		if err := os.MkdirAll(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("elsewhere"), at("agent/link")); err != nil {
		t.Skip(err)
	}

	b := nofollow.NewBoundary(at("agent"))
	for what, c := range map[string]struct {
		got  string
		want string // "" if there is no problem
	}{
		"a folder":              {Writable(b, at("agent")), ""},
		"one that is made":      {Writable(b, at("new/deep")), ""},
		"below a file":          {Writable(b, at("file/deep/new")), "file is not a folder"},
		"a file":                {Writable(b, at("file")), "file is not a folder"},
		"a link of the agent's": {Writable(b, at("agent/link")), "is a link, and lies in"},
		"below such a link":     {Writable(b, at("agent/link/new")), "is a link, and lies in"},
		"read by such a link":   {Readable(b, at("agent/link/x")), "is a link, and lies in"},
		"to read: a file":       {Readable(b, at("file")), ""},
		"to read: gone":         {Readable(b, at("gone")), "is not there; make it, or mount"},
		"to watch: gone":        {Folder(b, at("gone")), "is not there"},
		"to watch: a file":      {Folder(b, at("file")), "is not a folder"},
		"no program":            {Program(at("gone")), "is not there; install it"},
		"a folder to start":     {Program(dir), "is a folder, not a program"},
	} {
		if c.want == "" && c.got != "" || !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("looking has made something: %v (%v)", entries, err)
	}
}

func TestModes(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("root may write everywhere, and modes are not asked elsewhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if why := Writable(nofollow.UntrustedDirs{}, dir); !strings.Contains(why, "may not be written by the user that rouse runs as") {
		t.Errorf("%q", why)
	}
	if why := Folder(nofollow.UntrustedDirs{}, dir); why != "" {
		t.Errorf("%q", why)
	}
}

func BenchmarkLook(b *testing.B) {
	p := New()
	for b.Loop() {
		p.Look("a", func() string { return "gone" })
	}
}
