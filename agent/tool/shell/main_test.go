package shell_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestMain runs the tests, or with "as NAME" one of the programs that they start.
func TestMain(m *testing.M) {
	sandbox.Child()
	if len(os.Args) > 2 && os.Args[1] == "as" {
		os.Exit(as(os.Args[2], os.Args[3:]))
	}

	// These tests mostly wait for programs, so more of them than processors can run at the same
	// time.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// as runs a harmless program with one bad habit.
func as(what string, args []string) int {
	if program := more[what]; program != nil {
		return program(args)
	}

	switch what {
	case "argv":
		text, _ := json.Marshal(args)
		fmt.Printf("%s\n", text)
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "fail":
		fmt.Println("out")
		fmt.Fprintln(os.Stderr, "bad")
		return 3
	case "refused":
		fmt.Fprintln(os.Stderr, strings.Join(args, " "))
		return 1
	case "flood": // until it is killed
		line := []byte(strings.Repeat("flood ", 1000))
		for range 5000 {
			if _, err := os.Stdout.Write(line); err != nil {
				return 1
			}
		}
	case "torrent": // it would end by itself in time
		line := []byte(strings.Repeat("flood ", 10_000))
		for range 20_000 {
			if _, err := os.Stderr.Write(line); err != nil {
				return 1
			}
		}
	case "hang":
		time.Sleep(time.Minute)
	case "deaf":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("deaf")
		time.Sleep(time.Minute)
	case "binary":
		os.Stdout.Write([]byte("a\x00b\xffc\x1b[31mred\x1b[0m\x1b]0;title\x07 \u202eback\r\nnext\rover\x07"))
	case "touch":
		for _, path := range args {
			if err := os.WriteFile(path, []byte("touched"), 0o644); err != nil {
				fmt.Println("refused", filepath.Base(path))
			}
		}
	}

	return 0
}

// inOrder skips a test without concurrency under the race detector.
func inOrder(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("nothing in it goes on at once")
	}
}

// shared is the sandbox of all tests, because probing takes longer than using it. ROUSE_TEST_TIER
// selects a weaker tier.
var shared = sync.OnceValues(func() (*sandbox.Sandbox, error) {
	return sandbox.New(sandbox.Options{MaxTier: sandbox.Tier(os.Getenv("ROUSE_TEST_TIER"))})
})

// bench is a working folder with a real ledger and a real sandbox.
type bench struct {
	t       testing.TB
	dir     string
	me      string // this binary
	ledger  *ledger.Ledger
	roots   *tool.Roots
	options shell.Options
	in      tool.Invocation
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db"), Blobs: filepath.Join(t.TempDir(), "blobs")})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })
	box, err := shared()
	if err != nil {
		t.Fatal(err)
	}

	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	roots, err := tool.NewRoots(dir, []tool.Grant{{Path: me, File: true}})
	if err != nil {
		t.Fatal(err)
	}

	lanes, err := shell.NewLimiter(2)
	if err != nil {
		t.Fatal(err)
	}

	accepted, err := l.Enqueue(t.Context(), ledger.Request{Agent: "clerk", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}

	_, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}

	return &bench{t, dir, me, l, roots, shell.Options{
		Launcher: &shell.Launcher{Sandbox: box, Limiter: lanes, Roots: roots}, Log: l.FileOps, Allow: []string{"shell_run", "bash"},
	}, tool.Invocation{Run: a.Run, Attempt: a.Number, Agent: "clerk", Key: "k1"}}
}

// confined skips the test if there is no sandbox.
func (b *bench) confined() *bench {
	b.t.Helper()
	if tier, why := b.options.Launcher.Sandbox.Tier(b.t.Context()); tier == sandbox.TierNone {
		b.t.Skip("nothing confines a program here: ", why)
	}
	return b
}

func (b *bench) registry() *tool.Registry {
	b.t.Helper()
	tools, err := shell.Tools(b.options)
	if err != nil {
		b.t.Fatal(err)
	}

	files, err := file.Tools(file.Options{Roots: b.roots, Log: b.ledger.FileOps, Artifacts: b.ledger.Artifacts})
	if err != nil {
		b.t.Fatal(err)
	}

	r, err := tool.NewRegistry(append(tools, files...)...)
	if err != nil {
		b.t.Fatal(err)
	}

	return r
}

func (b *bench) need(command string) tool.Access {
	b.t.Helper()
	t, ok := b.registry().Lookup("shell_run")
	if !ok {
		b.t.Fatal("there is no shell_run")
	}

	args, _ := json.Marshal(map[string]any{"command": command})
	n, err := t.Access(b.t.Context(), b.in, args)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) call(name string, args map[string]any) (tool.Envelope, map[string]any) {
	b.t.Helper()
	text, _ := json.Marshal(args)
	e, err := b.registry().Call(b.t.Context(), b.in, name, text)
	if err != nil {
		b.t.Fatal(err)
	}

	var got map[string]any
	if e.OK {
		if err := json.Unmarshal(e.Result, &got); err != nil {
			b.t.Fatal(err)
		}
	}

	return e, got
}

// run runs a command that must start.
func (b *bench) run(command string) (tool.Envelope, map[string]any) {
	b.t.Helper()
	e, got := b.call("shell_run", map[string]any{"command": command})
	if !e.OK {
		b.t.Fatalf("%s: %+v", command, e)
	}
	return e, got
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// text returns the content of a file, or "none" if it does not exist.
func (b *bench) text(name string) string {
	raw, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		return "none"
	}
	return string(raw)
}
