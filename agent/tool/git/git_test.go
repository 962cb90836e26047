package git_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/git"
	"rouse/agent/tool/shell"
	"rouse/internal/contract"
)

func TestMain(m *testing.M) {
	sandbox.Child()

	// These tests mostly wait for programs, so more of them than processors can run at the same
	// time.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
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

// ownersConfig is the configuration of a repository, with the owner's name.
const ownersConfig = "[core]\nrepositoryformatversion = 0\nfilemode = true\n[user]\nname = Owner\nemail = owner@example.com\n"

// bench is a repository in a working folder, with a subfolder for canaries.
type bench struct {
	t             *testing.T
	dir, canaries string
	host          *shell.Launcher
	allow         []string
	kept          *tool.Registry
	key           string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()

	for _, program := range []string{"git", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program, " is not installed")
		}
	}

	box, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	if tier, why := box.Tier(t.Context()); tier == sandbox.TierNone {
		t.Skip("nothing confines a program here: ", why)
	}

	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	b := &bench{t: t, dir: filepath.Join(dir, "work"), canaries: filepath.Join(dir, "work", "canaries"), key: "k1"}
	if err := os.MkdirAll(b.canaries, 0o755); err != nil {
		t.Fatal(err)
	}

	roots, err := tool.NewRoots(b.dir, nil)
	if err != nil {
		t.Fatal(err)
	}

	lanes, err := shell.NewLimiter(4)
	if err != nil {
		t.Fatal(err)
	}

	b.host = &shell.Launcher{Sandbox: box, Limiter: lanes, Roots: roots}
	b.git("init", "-q", "-b", "main", "--template=")
	b.write(".git/config", ownersConfig)
	b.write(".git/info/exclude", "")

	return b
}

// git runs the owner's git, with an empty home.
func (b *bench) git(args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = b.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
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

// registry returns the tools of one run.
func (b *bench) registry() *tool.Registry {
	b.t.Helper()
	if b.kept == nil {
		tools, err := git.Tools(git.Options{Launcher: b.host, Folder: b.dir, Allow: b.allow})
		if err != nil {
			b.t.Fatal(err)
		}
		if b.kept, err = tool.NewRegistry(tools...); err != nil {
			b.t.Fatal(err)
		}
	}

	return b.kept
}

func (b *bench) in() tool.Invocation { return tool.Invocation{Run: 1, Agent: "clerk", Key: b.key} }

func (b *bench) call(name string, args map[string]any) (tool.Envelope, map[string]any) {
	b.t.Helper()
	text, _ := json.Marshal(args)
	e, err := b.registry().Call(b.t.Context(), b.in(), name, text)
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

func (b *bench) need(args map[string]any) tool.Access {
	b.t.Helper()
	t, _ := b.registry().Lookup("git_commit")
	text, _ := json.Marshal(args)
	n, err := t.Access(b.t.Context(), b.in(), text)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestStatus: OSA-38, the result matches git status.
func TestStatus(t *testing.T) {
	b := newBench(t)
	if e, got := b.call("git_status", nil); !e.OK || got["branch"] != "main" || got["clean"] != true {
		t.Errorf("of an empty repository: %+v %v", e, got)
	}

	for _, name := range []string{"a", "b", "c", "d"} {
		b.write(name, "one\ntwo\nthree\nfour "+name+"\n")
	}

	b.git("add", ".")
	b.git("commit", "-qm", "first")
	b.write("a", "changed\n")
	b.write("b", "staged\n")
	b.git("add", "b")
	b.git("mv", "c", "new name")
	b.write("un\x1b[31mknown", "x")
	if err := os.Remove(filepath.Join(b.dir, "d")); err != nil {
		t.Fatal(err)
	}

	before := b.git("status", "--porcelain")
	e, _ := b.call("git_status", nil)
	want := `{"branch":"main","clean":false,"staged":[{"path":"b","status":"modified"},{"path":"new name","status":"renamed","from":"c"}],` +
		`"unstaged":[{"path":"a","status":"modified"},{"path":"d","status":"deleted"}],"untracked":["unknown"]}`
	if !e.OK || string(e.Result) != want {
		t.Errorf("%+v\n%s\n%s", e, e.Result, want)
	}
	if after := b.git("status", "--porcelain"); after != before {
		t.Errorf("%s\n%s", before, after)
	}
}

// TestDiff: OSA-38, a diff of the folder, of staged changes, against a commit or of a path has at
// most 20,000 characters and omits files with secrets.
func TestDiff(t *testing.T) {
	inOrder(t)
	b := newBench(t)
	b.write("a", "one\n")
	b.write("sub/b", "one\n")
	b.write(".env", "KEY=old\n")
	b.git("add", "-f", ".")
	b.git("commit", "-qm", "first")
	first := b.git("rev-parse", "HEAD")
	b.write("a", "two\n")
	b.git("add", "a")
	b.write("sub/b", "two\n")
	diff := func(args map[string]any) string {
		t.Helper()
		e, got := b.call("git_diff", args)
		if !e.OK {
			t.Fatalf("%+v", e)
		}
		return got["diff"].(string)
	}
	if d := diff(nil); !strings.Contains(d, "sub/b | 2 +-") || !strings.Contains(d, "+two") || strings.Contains(d, "a/a") {
		t.Error(d)
	}
	if d := diff(map[string]any{"staged": true}); !strings.Contains(d, "b/a") || strings.Contains(d, "sub/b") {
		t.Error(d)
	}
	if d := diff(map[string]any{"commit": first[:8], "path": "sub"}); !strings.Contains(d, "sub/b") || strings.Contains(d, "b/a\n") {
		t.Error(d)
	}

	b.write(".env", "KEY=new\n")
	e, got := b.call("git_diff", nil)
	if d := got["diff"].(string); strings.Contains(d, "KEY") || !strings.Contains(d, "sub/b") || !strings.Contains(strings.Join(e.Warnings, ""), ".env") {
		t.Error(e.Warnings, d)
	}

	b.write("a", strings.Repeat("a long line of it\n", 5_000))
	if d := diff(map[string]any{"path": "a"}); len(d) > 20_200 || !strings.Contains(d, "left out") || !strings.HasPrefix(d, " a | 5001 +") {
		t.Errorf("%d: %.100s", len(d), d)
	}

	for say, args := range map[string]map[string]any{"there is no commit": {"commit": "--output=x"}, "outside": {"path": "../x"}, "there is no commit none": {"commit": "none"}, "secrets": {"path": ".env"}} {
		if e, _ := b.call("git_diff", args); e.OK || !strings.Contains(e.Message, say) {
			t.Errorf("%v: %+v", args, e)
		}
	}
}

// TestCommit: OSA-38, the shown tree is the committed tree, and a commit needs an approval.
func TestCommit(t *testing.T) {
	inOrder(t)
	b := newBench(t)
	if e, _ := b.call("git_commit", map[string]any{"message": "Nothing", "must_succeed": true}); e.OK || e.Message != "there is nothing to commit" {
		t.Errorf("of nothing that must be committed: %+v", e)
	}
	if e, got := b.call("git_commit", map[string]any{"message": "Nothing"}); !e.OK || got["committed"] != false || got["message"] != "nothing to commit" {
		t.Errorf("%+v %v", e, got)
	}
	if n := b.need(map[string]any{"message": "Nothing"}); n.NeedsApproval || n.Refused != nil {
		t.Errorf("%+v", n)
	}

	b.write("a", "one\n")
	b.write("b", "one\n")
	objects := b.git("count-objects")
	n := b.need(map[string]any{"message": "First\n\nwords \x1b[2K", "files": []string{"a"}})
	if !n.NeedsApproval || n.Refused != nil || !strings.Contains(n.Shown, "a | 1 +") || strings.Contains(n.Shown, " b |") || !strings.Contains(n.Shown, `words \x1b[2K`) || !strings.Contains(n.Shown, "+one") {
		t.Errorf("%+v", n)
	}
	if after := b.git("count-objects"); after != objects {
		t.Errorf("what was only looked at is kept: %s, then %s", objects, after)
	}
	if same := b.need(map[string]any{"message": "First\n\nwords \x1b[2K", "files": []string{"a"}}); same.Action != n.Action {
		t.Errorf("%s\n%s", n.Action, same.Action)
	}

	e, got := b.call("git_commit", map[string]any{"message": "First", "files": []string{"a"}})
	if !e.OK || got["committed"] != true || b.git("log", "--format=%H %an %s") != got["commit"].(string)+" Owner First" || b.git("status", "--porcelain") != "?? b" {
		t.Errorf("%+v %v: %s", e, got, b.git("status", "--porcelain"))
	}

	// Changes made after the approval are not committed.
	b.key = "k2"
	b.write("a", "two\n")
	if n := b.need(map[string]any{"message": "Second"}); !n.NeedsApproval || !strings.Contains(n.Shown, " b |") {
		t.Errorf("%+v", n)
	}

	b.write("a", "another\n")
	if e, _ := b.call("git_commit", map[string]any{"message": "Second"}); e.OK || e.Kind != tool.KindRejected || b.git("rev-list", "--count", "HEAD") != "1" {
		t.Errorf("%+v", e)
	}

	b.key = "k3"
	if err := os.Remove(filepath.Join(b.dir, "a")); err != nil {
		t.Fatal(err)
	}
	if e, got := b.call("git_commit", map[string]any{"message": "All of it"}); !e.OK || got["files"] != 2.0 || b.git("status", "--porcelain") != "" || b.git("ls-files") != "b" {
		t.Errorf("%+v %v", e, got)
	}

	b.git("fsck", "--strict")
}

// TestCommitRefused checks the reasons for refusing a commit.
func TestCommitRefused(t *testing.T) {
	inOrder(t)
	b := newBench(t)
	b.write("a", "one\n")

	for say, args := range map[string]map[string]any{"a message": {"message": " "}, "10001 characters": {"message": strings.Repeat("x", 10_001)}, "outside": {"message": "x", "files": []string{"../x"}}, "there is no file none": {"message": "x", "files": []string{"none"}}} {
		if e, _ := b.call("git_commit", args); e.OK || !strings.Contains(e.Message, say) {
			t.Errorf("%s: %+v", say, e)
		}
	}

	b.write(".env", "KEY=x")
	if e, _ := b.call("git_commit", map[string]any{"message": "x"}); e.OK || !strings.Contains(e.Message, ".env holds secrets") {
		t.Errorf("%+v", e)
	}
	if n := b.need(map[string]any{"message": "x"}); n.Refused == nil {
		t.Errorf("%+v", n)
	}
	if err := os.Remove(filepath.Join(b.dir, ".env")); err != nil {
		t.Fatal(err)
	}

	b.write(".gitattributes", "*.bin filter=lfs\n")
	b.write("x.bin", "large")
	if e, _ := b.call("git_commit", map[string]any{"message": "x"}); e.OK || !strings.Contains(e.Message, "x.bin is kept through the filter lfs") {
		t.Errorf("%+v", e)
	}

	b.write(".git/MERGE_HEAD", strings.Repeat("0", 40)+"\n")
	if e, _ := b.call("git_commit", map[string]any{"message": "x"}); e.OK || !strings.Contains(e.Message, "MERGE_HEAD") {
		t.Errorf("%+v", e)
	}
}

// TestStrangeIndex checks that an index that is not a regular file, or leads out of the repository,
// is neither waited for nor read.
func TestStrangeIndex(t *testing.T) {
	b := newBench(t)
	b.write("a", "one\n")
	index := filepath.Join(b.dir, ".git", "index")
	outside := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(outside, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, make := range []func() error{
		func() error { return exec.CommandContext(t.Context(), "mkfifo", index).Run() },
		func() error { return os.Symlink(outside, index) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if n := b.need(map[string]any{"message": "x"}); n.Refused == nil || strings.Contains(n.Refused.Message, "hunter2") {
			t.Errorf("%+v", n)
		}
		if err := os.Remove(index); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhere checks that the working folder must be the top folder of the repository.
func TestWhere(t *testing.T) {
	b := newBench(t)
	at := func(dir string, allow ...string) (*bench, int) {
		t.Helper()
		roots, err := tool.NewRoots(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &bench{t: t, dir: dir, host: &shell.Launcher{Sandbox: b.host.Sandbox, Limiter: b.host.Limiter, Roots: roots}, allow: allow, key: "k"}
		return c, len(c.registry().Names())
	}

	elsewhere := t.TempDir()
	if _, n := at(elsewhere); n != 0 {
		t.Error("git tools without a repository")
	}

	c, n := at(elsewhere, "git_*")
	if e, _ := c.call("git_status", nil); n != 3 || e.OK || !strings.Contains(e.Message, "not a git repository") {
		t.Errorf("%d %+v", n, e)
	}

	b.write("sub/x", "x")
	if _, n := at(filepath.Join(b.dir, "sub")); n != 0 {
		t.Error("git tools in a part of a repository")
	}

	c, n = at(filepath.Join(b.dir, "sub"), "git_*")
	if e, _ := c.call("git_status", nil); n != 3 || e.OK || !strings.Contains(e.Message, "a part of the repository") {
		t.Errorf("%d %+v", n, e)
	}

	for _, make := range []func(name string) error{
		func(name string) error { return os.Symlink(filepath.Join(b.dir, ".git"), name) },
		func(name string) error {
			return os.WriteFile(name, []byte("gitdir: "+filepath.Join(b.dir, ".git")), 0o644)
		},
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, ".git")); err != nil {
			t.Fatal(err)
		}

		c, _ = at(dir)
		if e, _ := c.call("git_status", nil); e.OK || !strings.Contains(e.Message, "leads out of it") {
			t.Errorf("%+v", e)
		}
	}
}

// TestGitTools: OSA-38.
func TestGitTools(t *testing.T) {
	row := contract.Of(t, "OSA-38")
	q := row.Quote
	b := newBench(t)
	if e, got := b.call(q("git_commit"), map[string]any{q("message"): "Nothing"}); !e.OK || got["message"] != q("nothing to commit") {
		t.Errorf("%+v %v", e, got)
	}
	b.write("a", "one\n")
	b.write("b", "one\n")
	if n := b.need(map[string]any{"message": "First", "files": []string{"a"}}); !n.NeedsApproval {
		t.Errorf("%+v", n)
	}
	if e, _ := b.call("git_commit", map[string]any{"message": "First", q("files"): []string{"a"}}); !e.OK {
		t.Errorf("%+v", e)
	}
	if e, _ := b.call(q("git_status"), map[string]any{}); !e.OK || !strings.Contains(string(e.Result), `"untracked":["b"]`) {
		t.Errorf("%+v", e)
	}

	most := row.Number("20,000")
	b.write("a", strings.Repeat("a long line of it\n", most/10))
	b.git("add", "a")
	for i, args := range []map[string]any{{q("staged"): true}, {q("commit"): "HEAD", q("path"): "a"}, {}} {
		e, got := b.call(q("git_diff"), args)
		if diff, _ := got["diff"].(string); !e.OK || len(diff) > most+200 || (len(diff) > most/2) != (i < 2) {
			t.Errorf("%v: %d characters, %+v", args, len(diff), e.Kind)
		}
	}
}
