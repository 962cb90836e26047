package shell_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"rouse/agent/tool"
	"rouse/internal/nofollow"
)

// asked returns the need of a command, with the files that it names.
func (b *bench) asked(command string) tool.Access {
	b.t.Helper()
	b.options.Launcher.Writable = nofollow.NewBoundary(b.dir)
	n := b.need(command)
	if n.Refused != nil || n.Bind == nil {
		return n
	}

	n, err := tool.RefusedAccess(n.Bind(n))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// approve makes the owner approve a command in its current form.
func (b *bench) approve(command string) tool.Access {
	b.t.Helper()
	n := b.asked(command)
	if n.Refused != nil {
		b.t.Fatalf("%s: %+v", command, n.Refused)
	}
	b.in.Approved = tool.ActionHash("clerk", "shell_run", n.Action)
	return n
}

// TestApprovedContent checks that an approval covers the content of the files, however the command
// names them. The content is shown, other content is another action, and a call after a change is
// refused.
func TestApprovedContent(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.write("sub/inner.sh", "echo inner one\n")
	for _, command := range []string{
		"sh job.sh", "sh ./job.sh x", "sh " + filepath.Join(b.dir, "job.sh"), "./job.sh", "env A=b sh job.sh", "nice -n 5 sh job.sh", "bash -c 'sh job.sh'", "bash -ec 'true; . ./job.sh'",
		"sh job.sh; true", "cat job.sh | sh", "sh < job.sh", "f=job.sh; sh $f", "for f in job.sh x; do sh $f; done", "echo job.sh | xargs sh", "find . -name job.sh -exec sh {} ';'",
		"sh *.sh; true", "cd sub && sh ../job.sh", "sh <<END\nsh job.sh\nEND", "cat $PWD/job.sh | sh", "eval 'sh job.sh'; true", "printf x -fjob.sh", "printf x --file=job.sh", "printf x @job.sh -d@job.sh",
		"python3 -c 'exec(open(\"job.sh\").read())'", "awk 'BEGIN { system(\"sh job.sh\") }'", "make", "make -C sub -f ../job.sh", "rm job.sh",
	} {
		b.write("job.sh", "echo one\n")
		if err := os.Chmod(filepath.Join(b.dir, "job.sh"), 0o755); err != nil {
			t.Fatal(err)
		}

		before := b.approve(command)
		b.write("job.sh", "echo two\n")
		after := b.asked(command)
		if before.Action == after.Action || before.Shown == after.Shown {
			t.Errorf("%s: another content is the same action: %s", command, after.Shown)
		}
		if e, _ := b.call("shell_run", map[string]any{"command": command}); e.OK || e.Kind != tool.KindRejected || !strings.Contains(e.Message, "changed in between") {
			t.Errorf("%s: was called with another content: %+v", command, e)
		}
		b.in.Approved = ""
	}
}

// TestApprovedCopy checks that a program runs the approved copy, finds the neighbours of the
// original next to it, and prints the names that the caller used.
func TestApprovedCopy(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	b := newBench(t).confined()
	b.write("lib.sh", "echo from the library\n")
	b.write("job.sh", "#!/bin/sh\n. \"$(dirname \"$0\")/lib.sh\"\necho \"$0\"\nwhile [ ! -e swapped ] && [ \"$1\" = wait ]; do :; done\necho one\n")
	if err := os.Chmod(filepath.Join(b.dir, "job.sh"), 0o755); err != nil {
		t.Fatal(err)
	}

	for _, command := range []string{"sh job.sh", "./job.sh", "sh job.sh; true", "bash -c 'sh job.sh'", "env A=b sh job.sh"} {
		if n := b.approve(command); n.NoStandingApproval || !strings.Contains(n.Shown, "\n    echo one") {
			t.Errorf("%s: %+v", command, n)
		}
		_, got := b.run(command)
		if out := fmt.Sprint(got["stdout"]); !strings.HasPrefix(out, "from the library\n") || !strings.Contains(out, "job.sh\none\n") || strings.Contains(out, "rouse-command") {
			t.Errorf("%s: %v", command, got)
		}
	}

	// The command replaces the original before it opens the file.
	command := "mv job.sh old.sh; printf 'echo two\\n' > job.sh; sh job.sh; sh old.sh"
	b.approve(command)
	if _, got := b.run(command); strings.Contains(fmt.Sprint(got["stdout"]), "two") || !strings.Contains(fmt.Sprint(got["stdout"]), "one") {
		t.Errorf("%v", got)
	}

	left, err := filepath.Glob(filepath.Join(os.TempDir(), "rouse-command-files-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("copies are left: %v %v", left, err)
	}
}

// TestUnapprovable checks that a command that could lead elsewhere later cannot be approved, and
// that an incomplete hash excludes a standing approval.
func TestUnapprovable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("sub/job.sh", "echo\n")
	b.write("large", strings.Repeat("x", 17<<20))
	b.write(".env", "TOKEN=hunter2\n")
	b.write("many.txt", "x")
	for from, to := range map[string]string{"link": "sub/job.sh", "out": "/etc/passwd", "folder": "sub"} {
		if err := os.Symlink(to, filepath.Join(b.dir, from)); err != nil {
			t.Fatal(err)
		}
	}

	var manyPatterns string
	for i := range 200 {
		b.write(fmt.Sprintf("many/%d", i), "")
		manyPatterns += fmt.Sprintf(" many/*.x%d", i)
	}

	for command, want := range map[string]string{
		"sh link": "is a link", "cat out": "is a link", "sh folder/job.sh": "leads through a link", "sh none.sh": "there is no none.sh", "./none.sh": "there is no ./none.sh",
		"true " + strings.Repeat("x:", 7000): "more words", "cat" + manyPatterns: "among more than 20000 names",
	} {
		if n := b.asked(command); n.Refused == nil || n.Refused.Kind != tool.KindRejected || !strings.Contains(n.Refused.Message, want) {
			t.Errorf("%.40s: %+v", command, n.Refused)
		}
	}

	for command, shown := range map[string]string{"ls sub": "sub is a folder of", "cat large": "too large to be bound", "rm link": "link is a link to sub/job.sh"} {
		if n := b.asked(command); n.Refused != nil || !n.NoStandingApproval || !strings.Contains(n.Shown, shown) {
			t.Errorf("%s: %+v", command, n)
		}
	}

	if n := b.asked("f=link; sh $f"); n.Refused != nil || !strings.Contains(n.Action, "sub/job.sh\",\"kind\":\"file\",\"sha256\"") {
		t.Errorf("what a link leads to is not bound: %+v", n)
	}
	if n := b.asked("cat .env"); n.NoStandingApproval || strings.Contains(n.Shown, "hunter2") || !strings.Contains(n.Shown, "sha256") {
		t.Errorf("%+v", n)
	}
	// Files that a command writes are not part of the approval.
	if before := b.asked("echo x > out.txt; echo y >> log.txt"); before.NoStandingApproval || strings.Contains(before.Action, "files") {
		t.Errorf("%+v", before)
	}
}

// TestPatternsFollowNoLink: OSA-30, the result of a command does not reveal names behind a link of
// its agent before an approval.
func TestPatternsFollowNoLink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	outside := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "canary-key"), nil, 0o600), os.Symlink(outside, filepath.Join(b.dir, "link"))); err != nil {
		t.Fatal(err)
	}

	for _, pattern := range []string{"link/NAME", "*/NAME", "./l*/NAME", filepath.Join(b.dir, "*/NAME")} {
		command := func(name string) string { return "cat " + strings.ReplaceAll(pattern, "NAME", name) }
		there, missing := b.asked(command("can*")), b.asked(command("non*"))
		if there.Refused != nil && strings.Contains(there.Refused.Message, "canary") || strings.Contains(there.Shown, "canary") {
			t.Errorf("%s tells the name: %+v", pattern, there)
		}
		if (there.Refused == nil) != (missing.Refused == nil) || there.NoStandingApproval != missing.NoStandingApproval {
			t.Errorf("%s tells whether there is one: %+v, %+v", pattern, there, missing)
		}
	}

	b.write("sub/job.sh", "echo\n")
	if n := b.asked("sh s*/j*.sh; true"); n.Refused != nil || !strings.Contains(n.Shown, "    echo") {
		t.Errorf("%+v", n)
	}
}

// TestSwappedWhileItRuns checks that another run cannot replace an approved file between the
// comparison and the program's open.
func TestSwappedWhileItRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.write("job.sh", "echo one\n")
	command := "echo x > started; until ls | grep -q '^g[o]$'; do :; done; sh job.sh; ./job.sh"
	if err := os.Chmod(filepath.Join(b.dir, "job.sh"), 0o755); err != nil {
		t.Fatal(err)
	}

	b.approve(command)
	swapped := make(chan error, 1)
	go func() {
		for b.text("started") != "x\n" {
			time.Sleep(time.Millisecond)
		}
		b.write("other.sh", "echo two\n")
		err := errors.Join(os.Chmod(filepath.Join(b.dir, "other.sh"), 0o755), os.Rename(filepath.Join(b.dir, "other.sh"), filepath.Join(b.dir, "job.sh")))
		b.write("go", "")
		swapped <- err
	}()

	_, got := b.run(command)
	if err := <-swapped; err != nil {
		t.Fatal(err)
	}
	if out := fmt.Sprint(got["stdout"]); out != "one\none\n" {
		t.Errorf("it said %q: %v", out, got)
	}
}

// TestApprovedByPattern checks that the files matched by a pattern are bound to the approval,
// whatever bytes their names contain.
func TestApprovedByPattern(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	folders := []string{"sub"}
	if runtime.GOOS == "linux" { // other systems do not allow such names
		folders = append(folders, "\xff")
	}

	for _, folder := range folders {
		b.write(folder+"/job.sh", "echo one\n")
		before := b.asked("sh */job.sh; true")
		b.write(folder+"/job.sh", "echo two\n")
		if after := b.asked("sh */job.sh; true"); before.Action == after.Action || !strings.Contains(after.Shown, "echo two") {
			t.Errorf("%q: another content is the same action: %s", folder, after.Shown)
		}
	}
}
