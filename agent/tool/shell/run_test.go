package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/shell"
	"rouse/internal/contract"
	"rouse/internal/nofollow"
)

// TestRun: OSA-37, the result of a program that ends by itself.
func TestRun(t *testing.T) {
	row := contract.Of(t, "OSA-37")
	q, most := row.Quote, row.Number("10,000")+100
	b := newBench(t).confined()
	e, got := b.run(b.me + " as fail")
	if !e.OK || got[q("stdout")] != "out\n" || got[q("stderr")] != "bad\n" || got[q("exit_code")] != 3.0 || got[q("working_directory")] != b.dir || got[q("killed_by")] != nil || got["tier"] == "" {
		t.Errorf("%v", got)
	}

	_, got = b.run(b.me + " as binary")
	if got["stdout"] != "a\\x00b\uFFFDcred \\u202eback\nnext\nover\\x07" {
		t.Errorf("%q", got["stdout"])
	}

	_, got = b.run(b.me + " as flood")
	if text := got["stdout"].(string); len(text) > most || !strings.Contains(text, "bytes left out") {
		t.Errorf("%d characters", len(text))
	}

	_, got = b.run(b.me + " as torrent")
	if text := got["stderr"].(string); got["killed_by"] != shell.KilledByOutput || len(text) > most {
		t.Errorf("%v of %d characters", got["killed_by"], len(text))
	}

	t.Setenv("ROUSE_TEST_CANARY", "canary")
	_, got = b.run(b.me + " as env")
	if text := got["stdout"].(string); strings.Contains(text, "canary") || !strings.Contains(text, "HOME=") || strings.Contains(text, os.Getenv("HOME")+"\n") {
		t.Errorf("the environment: %q", text)
	}

	for command, kind := range map[string]tool.Kind{"no-such-program-here": tool.KindNotFound, "./no-such-file": tool.KindUnavailable} {
		if e, _ := b.call("shell_run", map[string]any{"command": command}); e.OK || e.Kind != kind && e.Kind != tool.KindNotFound {
			t.Errorf("%s: %+v", command, e)
		}
	}

	if e, _ := b.call(q("shell_run"), map[string]any{q("command"): "true", q("timeout"): row.Number("3600") + 1}); e.Kind != tool.KindInvalidArgs || e.Field != "timeout" {
		t.Errorf("%+v", e)
	}
	for _, seconds := range []int{row.Number("0") - 1, row.Number("0"), row.Number("3600")} {
		if e, got := b.call("shell_run", map[string]any{"command": b.me + " as argv x", "timeout": seconds}); !e.OK || got["exit_code"] != 0.0 {
			t.Errorf("%d seconds: %+v", seconds, e)
		}
	}
}

// TestScript: OSA-37, bash gets the whole approved script, and a failure in a pipe fails it. The
// tool bash shows 256 Ki characters of a stream (YOA-05).
func TestScript(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "YOA-05")
	b := newBench(t).confined()
	for _, deadly := range row.Between("Commands such as ", " are refused") {
		if n := b.need(deadly); n.Refused == nil || n.Refused.Kind != tool.KindRejected {
			t.Errorf("%s: %+v", deadly, n)
		}
	}
	b.write("a.txt", "one\ntwo\n")
	_, got := b.run("cat a.txt | wc -l > count; cat count; cat none | cat")
	if strings.TrimSpace(got["stdout"].(string)) != "2" || got["exit_code"] != 1.0 || !strings.Contains(got["stderr"].(string), "none") {
		t.Errorf("%v", got)
	}

	e, got := b.call(row.Quote("bash"), map[string]any{"command": "echo out; echo bad >&2; exit 4"})
	if !e.OK || got["text"] != row.Quote("Exit code: 4")+"\nout\nStandard error:\nbad\n" {
		t.Errorf("%+v %v", e, got)
	}

	most := row.Number("256") << 10
	for size, cut := range map[int]bool{most: false, most + 1: true} {
		_, got := b.call("bash", map[string]any{"command": fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)})
		text, _ := got["text"].(string)
		if n := strings.Count(text, "x") - strings.Count(text, "Exit"); n < most-1 || n > most || strings.Contains(text, "left out") != cut {
			t.Errorf("of %d characters %d are shown, with %d beside them", size, n, len(text)-n)
		}
	}
}

// TestEnded checks that programs that hang or ignore signals are killed, and that the result states
// the reason.
func TestEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	for what, args := range map[string]map[string]any{
		"hang": {"timeout": 1},
		"deaf": {}, // after the default timeout, which is short here
	} {
		b.options.Idle = 400 * time.Millisecond
		args["command"] = b.me + " as " + what
		start := time.Now()
		e, got := b.call("shell_run", args)
		if took := time.Since(start); !e.OK || got["killed_by"] != "idle_timeout" || took > 30*time.Second || what == "hang" && took < time.Second {
			t.Errorf("%s: %+v %v", what, e, got)
		}
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the run was cancelled"))
	e, err := b.registry().Call(ctx, b.in, "shell_run", []byte(`{"command":"true"}`))
	if err != nil || e.OK || !strings.Contains(e.Message, "the run was cancelled") {
		t.Errorf("%+v %v", e, err)
	}
}

// TestOutside checks that a command changes nothing outside its folder, including files that git
// would run there.
func TestOutside(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	outside := filepath.Join(t.TempDir(), "canary")
	b.write(".git/config", "[core]\n")
	b.write(".git/hooks/x", "#")
	b.write("sub/inner/.git/config", "[core]\n")
	b.write("sub/linked/.git", "gitdir: elsewhere\n")
	b.write("masked/x", "kept")
	b.write("free/x", "x")
	b.roots.Mask(tool.ProtectedPaths{ReadOnly: []string{filepath.Join(b.dir, "masked")}, Hidden: []string{filepath.Join(b.dir, "later")}})
	touch := []string{outside, ".git/config", ".git/hooks/pre-commit", "sub/inner/.git/config", "sub/inner/.git/hooks", "sub/linked/.git", "masked/x", "masked/y", "later", "free/own"}
	_, got := b.run(b.me + " as touch " + strings.Join(touch, " "))
	if got["exit_code"] != 0.0 {
		t.Fatalf("%v", got)
	}
	if b.text("free/own") != "touched" {
		t.Error("its own folder cannot be written")
	}

	for name, want := range map[string]string{".git/config": "[core]\n", ".git/hooks/x": "#", ".git/hooks/pre-commit": "none",
		"sub/inner/.git/config": "[core]\n", "sub/inner/.git/hooks": "none", "sub/linked/.git": "gitdir: elsewhere\n", "masked/x": "kept", "masked/y": "none", "later": "none"} {
		if text := b.text(name); text != want {
			t.Errorf("%s is %q", name, text)
		}
	}

	if _, err := os.Stat(outside); err == nil {
		t.Error("a canary outside was made")
	}
}

// TestLinkedConfiguration checks that a link in place of a hidden file reveals nothing of its
// target.
func TestLinkedConfiguration(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t).confined()
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{".git/config", "sub/.git", "sub/deep/.git/hooks"} {
		b.write(name+".kept", "")
		if err := os.Symlink(canary, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}

		e, got := b.call("shell_run", map[string]any{"command": "cat " + name + " " + canary})
		if strings.Contains(string(e.Result)+e.Message, "hunter2") || e.OK && got["exit_code"] == 0.0 {
			t.Errorf("%s: %+v", name, e)
		}
		if err := os.Remove(filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSwappedPlaces: OSA-30, if an agent replaces a granted folder with a link, neither later
// commands nor tools of a later run see the target.
func TestSwappedPlaces(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t).confined()
	outside := t.TempDir()
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}

	b.write("ref/canary", "open")
	b.write("drop.txt", "open")
	grants := []tool.Grant{{Path: b.me, File: true}, {Path: filepath.Join(b.dir, "ref")}, {Path: filepath.Join(b.dir, "drop.txt"), File: true}}
	renew := func() {
		t.Helper()
		roots, err := tool.NewRoots(b.dir, grants)
		if err != nil {
			t.Fatal(err)
		}
		b.roots, b.options.Launcher.Roots = roots, roots
	}

	renew()
	if _, got := b.run("cat ref/canary drop.txt"); got["stdout"] != "openopen" {
		t.Fatalf("%v", got)
	}

	_, got := b.run("rm -r ref && ln -s " + outside + " ref && rm drop.txt && ln -s " + canary + " drop.txt")
	if got["exit_code"] != 0.0 {
		t.Fatalf("%v", got)
	}

	for range 2 { // in this run, and in a later one
		for _, name := range []string{"ref/canary", "drop.txt", canary} {
			if _, got := b.run("cat " + name); strings.Contains(fmt.Sprint(got), "hunter2") {
				t.Errorf("a command reads %s", name)
			}
			if e, _ := b.call("file_read", map[string]any{"path": name}); strings.Contains(string(e.Result)+e.Message, "hunter2") {
				t.Errorf("file_read reads %s", name)
			}
		}
		renew()
	}
}

// TestLabels checks that a command gets the labels of everything its run may read.
func TestLabels(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t)
	for want, grants := range map[tool.Taint][]tool.Grant{
		0:                             {{Path: t.TempDir()}},
		tool.Private:                  {{Path: t.TempDir(), Private: true}},
		tool.Untrusted:                {{Path: b.me, File: true, Untrusted: true}},
		tool.Private | tool.Untrusted: {{Path: filepath.Join(t.TempDir(), "to come"), Private: true}, {Path: b.me, File: true, Untrusted: true}},
	} {
		roots, err := tool.NewRoots(b.dir, grants)
		if err != nil {
			t.Fatal(err)
		}

		host := *b.options.Launcher
		host.Roots = roots
		c := *b
		c.options.Launcher = &host
		if n := c.need("true"); b.tier() != "D" && n.AddsTaint != want {
			t.Errorf("%s, not %s", n.AddsTaint, want)
		}

		if b.tier() != "D" {
			c.run("true")
		}
	}
}

// TestNoTraceOfMasks checks that masks leave no files behind after a command.
func TestNoTraceOfMasks(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.run("true")
	if left, err := os.ReadDir(b.dir); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}

// TestLanes: OSL-20, a limited number of commands run at once, and they start in order.
func TestLanes(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	lanes, err := shell.NewLimiter(1)
	if err != nil {
		t.Fatal(err)
	}

	b.options.Launcher.Limiter = lanes
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			b.call("bash", map[string]any{"command": fmt.Sprintf("mkdir busy && sleep 0.02 && rmdir busy || echo %d >> together", i)})
		})
	}

	all.Wait()
	if b.text("together") != "none" {
		t.Errorf("two ran at once: %s", b.text("together"))
	}
	if _, err := shell.NewLimiter(0); err == nil {
		t.Error("no lanes at all")
	}
}

// TestQueuedCommandIsCancelled: OSA-07, a command that waits for its turn when its run is cancelled
// does not start.
func TestQueuedCommandIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	lanes, err := shell.NewLimiter(1)
	if err != nil {
		t.Fatal(err)
	}

	b.options.Launcher.Limiter = lanes
	first := make(chan tool.Envelope)
	go func() {
		e, _ := b.call("bash", map[string]any{"command": "touch busy; until [ -e go ]; do sleep 0.01; done"})
		first <- e
	}()
	for b.text("busy") == "none" {
		time.Sleep(time.Millisecond)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	e, err := b.registry().Call(ctx, b.in, "bash", json.RawMessage(`{"command":"touch begun"}`))
	b.write("go", "")
	if one := <-first; !one.OK {
		t.Errorf("the first: %+v", one)
	}
	if err != nil || e.Kind != tool.KindExecutionError || !e.NotStarted || e.Message != "cancelled: stopped" || b.text("begun") != "none" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestSecrets: OSL-22, the value of a secret is filled in last, and does not appear in any output.
func TestSecrets(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-22")
	placeholder := row.Quote("__OSL_SECRET[key]__")
	b := newBench(t).confined()
	b.options.Secrets = []tool.SecretGrant{{Name: "key", Value: "hunter2"}, {Name: "web", OnlyTo: "example.com", Value: "x"}, {Name: "gone"}}
	b.options.Grants = []shell.Grant{{Argv: []string{b.me, "*"}}}
	n := b.need(b.me + " as argv " + placeholder)
	if n.MissingGrant != "" || n.AddsTaint&tool.Private == 0 || strings.Contains(n.Action+n.Shown, "hunter2") || !strings.Contains(n.Shown, "OSL_SECRET[key]") {
		t.Errorf("%+v", n)
	}

	_, got := b.run(b.me + " as argv 'x=" + placeholder + "'")
	if got["stdout"] != "[\"x="+row.Quote("[secret key]")+"\"]\n" {
		t.Errorf("%v", got["stdout"])
	}

	for command, kind := range map[string]tool.Kind{"prog __OSL_SECRET[none]__": tool.Kind(row.Quote("rejected")), "prog __OSL_SECRET[gone]__": tool.KindRejected, "prog __OSL_SECRET[web]__": tool.KindRejected, "echo '__OSL_SECRET[key]__' | cat": tool.KindInvalidArgs} {
		if n := b.need(command); n.Refused == nil || n.Refused.Kind != kind {
			t.Errorf("%s: %+v", command, n)
		}
	}
}

// TestNeeds checks the need of a command and its description for a person.
func TestNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.options.Grants = []shell.Grant{{Argv: []string{"prog", "*"}}, {Argv: []string{"fetch", "*"}, Network: true}}
	if n := b.need("prog a"); n.MissingGrant != "" || n.AddsTaint&tool.Untrusted != 0 || len(n.Writes) != 1 {
		t.Errorf("%+v", n)
	}
	if n := b.need("fetch a"); n.MissingGrant != "" || n.AddsTaint&(tool.Untrusted|tool.Outward) != tool.Untrusted|tool.Outward || !strings.Contains(n.Shown, "network: host") {
		t.Errorf("%+v", n)
	}

	other := b.need("other 'a b' $'\\x1b[2K'\u202e")
	if other.MissingGrant == "" || strings.ContainsAny(other.Shown, "\x1b\u202e") {
		t.Errorf("%+v", other)
	}
	if hidden := b.need("other \u202e'a\x1b[2K\r b'"); hidden.MissingGrant == "" || strings.ContainsAny(hidden.Shown, "\x1b\u202e\r") {
		t.Errorf("%q", hidden.Shown)
	}
	if a, same, apart := b.need("other  a 'b'").Action, b.need("other a b").Action, b.need("other 'a b'").Action; a != same || a == apart {
		t.Errorf("%s, %s, %s", a, same, apart)
	}

	for command, want := range map[string]bool{"rm -r sub": true, "rm none": false, "rm a*": true, "ls | rm a": true, "ls | cat": false} {
		if n := b.need(command); b.tier() != "D" && (n.AddsTaint&tool.Outward != 0) != want {
			t.Errorf("%s: %s", command, n.AddsTaint)
		}
	}
}

func (b *bench) tier() string { return string(b.options.Launcher.Tier(b.t.Context())) }

// TestUndo: OSA-36, file_undo reverts the changes of mv, cp, rm and mkdir, all of them or none. A
// change that cannot be undone is reported.
func TestUndo(t *testing.T) {
	t.Parallel()
	inOrder(t)
	row := contract.Of(t, "OSA-36")
	q, uncovered := row.Quote, row.Quote("not covered by undo")
	all := map[string]string{"a.txt": "one\n", "b.bin": "\x00\xff", "dir/c.txt": "three\n", "a b.txt": "space\n"}
	for _, c := range []struct {
		command string
		want    string // name=content of additional files afterwards
		lost    string // in the warning; "" if it can be undone
	}{
		{q("rm a.txt"), "a.txt=none", ""},
		{"rm -f a.txt none", "a.txt=none", ""},
		{"rm b.bin 'a b.txt'", "b.bin=none", ""},
		{q("mv a.txt d.txt"), "a.txt=none d.txt=one\n", ""},
		{"mv a.txt b.bin", "a.txt=none b.bin=one\n", ""},
		{"mv a.txt b.bin dir", "dir/a.txt=one\n dir/b.bin=\x00\xff", ""},
		{q("cp a.txt dir/c.txt"), "dir/c.txt=one\n", ""},
		{"cp -p b.bin e.bin", "e.bin=\x00\xff", ""},
		{"mkdir -p x/y/z", "x/y/z=folder", ""},
		{q("mkdir x"), "x=folder", ""},
		{q("rm -r dir"), "dir=none", "nothing is known of what it does with -r"},
		{"mv dir dir2", "dir=none", "dir is not a file"},
		{"rm a.txt && true", "a.txt=none", "it is a script"},
		{q("rm *.txt"), "a.txt=none", "it is a script"},
		{"rm a.txt none", "a.txt=none", "there is no none"},
		{"ln -s a.txt link", "", "not covered by undo: it is not known which files ln changes"},
		{q("echo new > a.txt"), "a.txt=new\n", "not covered by undo: it redirects output into a file"},
		{"cat a.txt >> b.bin", "", "not covered by undo: it redirects output into a file"},
		{q("cat a.txt | tee b.bin"), "b.bin=one\n", "not covered by undo: it is a script"},
		{"sh -c 'rm a.txt'", "a.txt=none", "not covered by undo: it is not known which files sh changes"},
		{"sort -o a.txt b.bin", "", "not covered by undo: it is not known which files sort changes"},
		{"find . -name a.txt -delete", "a.txt=none", "not covered by undo: it is not known which files find changes"},
		{"cat a.txt | grep one 2> /dev/null && find . -name '*.txt' | sort", "", "-"},
		{"cat a.txt", "", "-"},
	} {
		t.Run(c.command, func(t *testing.T) {
			t.Parallel()
			b := newBench(t).confined()
			if b.tier() != "A" && strings.HasPrefix(c.command, "cp -p") {
				t.Skip("no times can be kept there")
			}

			for name, text := range all {
				b.write(name, text)
			}

			before := b.tree()
			e, got := b.run(c.command)

			for pair := range strings.SplitSeq(c.want, " ") {
				if name, text, ok := strings.Cut(pair, "="); ok && b.is(name) != text {
					t.Errorf("%s is %q after it", name, b.is(name))
				}
			}

			if c.lost != "" {
				if warned := strings.Join(e.Warnings, " "); c.lost != "-" && !strings.Contains(warned, c.lost) || c.lost != "-" && !strings.Contains(warned, uncovered) || c.lost == "-" && warned != "" || got["operation_id"] != nil {
					t.Errorf("%v %v", e.Warnings, got)
				}
				return
			}

			if len(e.Warnings) > 0 || got["operation_id"] != "k1" {
				t.Fatalf("%+v %v", e, got)
			}
			if e, _ := b.call("file_undo", nil); !e.OK {
				t.Fatalf("%+v", e)
			}
			if after := b.tree(); after != before {
				t.Errorf("after undo:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// TestOwnOutput checks that files placed by mv and cp are announced like those of the file tools,
// so that a watch does not attribute them to another program.
func TestOwnOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.write("a.txt", "one\n")
	var told []string
	b.roots.OnOutput(func(_ context.Context, o tool.Output) error {
		told = append(told, filepath.Base(o.Path)+" "+fmt.Sprint(o.Size))
		return nil
	})
	b.run("cp a.txt b.txt")
	b.run("mkdir sub")
	b.run("mv a.txt b.txt sub")
	b.run("rm sub/a.txt")
	if got := strings.Join(told, ", "); got != "b.txt 4, a.txt 4, b.txt 4" {
		t.Error(got)
	}
}

// TestUndoRunOfCommands undoes a whole run in which commands and file tools changed the same
// places.
func TestUndoRunOfCommands(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.write("a.txt", "one\n")
	before := b.tree()

	for i, call := range []func(){
		func() { b.run("mkdir -p new/deep") },
		func() { b.call("file_write", map[string]any{"path": "new/deep/x.txt", "content": "x"}) },
		func() { b.run("mv a.txt new/a.txt") },
		func() { b.run("cp new/a.txt new/deep/x.txt") },
		func() { b.run("rm new/a.txt") },
	} {
		b.in.Key = fmt.Sprintf("k%d", i)
		call()
	}

	b.write("new/stranger", "x")
	if out, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, b.in.Run, false, true); err != nil || done || !strings.Contains(fmt.Sprint(out), "the folder holds something") {
		t.Errorf("%v %v %v", out, done, err)
	}
	if err := os.Remove(filepath.Join(b.dir, "new/stranger")); err != nil {
		t.Fatal(err)
	}
	if out, done, err := file.UndoRun(t.Context(), b.ledger.FileOps, nil, nofollow.UntrustedDirs{}, b.in.Run, false, false); err != nil || !done || b.tree() != before {
		t.Errorf("%v %v %v\n%s", out, done, err, b.tree())
	}
}

// TestUndoOfAMoveIsWhole checks that an undo restores neither name while one of them is occupied.
func TestUndoOfAMoveIsWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.write("a.txt", "one\n")
	b.run("mv a.txt b.txt")
	b.write("a.txt", "a stranger's\n")
	before := b.tree()
	if e, _ := b.call("file_undo", map[string]any{"path": "b.txt"}); e.OK || e.Kind != tool.KindRejected || b.tree() != before {
		t.Errorf("%+v\n%s", e, b.tree())
	}
}

// is returns the content of a name: a text, "folder" or "none".
func (b *bench) is(name string) string {
	if info, err := os.Stat(filepath.Join(b.dir, name)); err == nil && info.IsDir() {
		return "folder"
	}
	return b.text(name)
}

// tree lists everything in the working folder.
func (b *bench) tree() string {
	var out strings.Builder
	_ = filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(b.dir, path)
		fmt.Fprintf(&out, "%s: %q\n", rel, b.is(rel))
		return err
	})
	return out.String()
}

// TestBatchID: OSA-07, OSA-35, the changes of one answer share a batch_id in the history, and no
// other answer has it.
func TestBatchID(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t).confined()
	b.write("a.txt", "one\n")
	b.write("b.txt", "two\n")
	b.in.Key = "m1.2.1"
	b.run("rm a.txt b.txt")
	b.in.Key = "m1.2.2"
	b.call("file_write", map[string]any{"path": "c.txt", "content": "x"})
	b.in.Key = "m1.3.1"
	b.call("file_write", map[string]any{"path": "d.txt", "content": "x"})

	e, got := b.call("file_operation_history", nil)
	ops, _ := got["operations"].([]any)
	if !e.OK || len(ops) != 4 {
		t.Fatalf("%+v %v", e, got)
	}
	var batches []string
	for _, op := range ops {
		id, _ := op.(map[string]any)["batch_id"].(string)
		batches = append(batches, id)
	}
	if batches[0] == "" || batches[1] == "" || batches[0] == batches[1] || batches[1] != batches[2] || batches[2] != batches[3] {
		t.Errorf("the batches are %q", batches)
	}
}
