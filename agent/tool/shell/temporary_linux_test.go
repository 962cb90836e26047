package shell_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/nofollow"
)

// onTier returns a bench whose commands are confined on one tier.
func onTier(t *testing.T, tier sandbox.Tier) *bench {
	t.Helper()
	b := newBench(t)
	box, err := sandbox.New(sandbox.Options{MaxTier: tier})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	if have, why := box.Tier(t.Context()); have != tier {
		t.Skipf("tier %s is not available here: %v", tier, why)
	}
	b.options.Launcher.Sandbox = box
	b.options.Launcher.Scratch = filepath.Join(t.TempDir(), "commands")
	return b
}

// holds reports whether a file of the working folder contains a text.
func (b *bench) holds(text string) (found bool) {
	b.t.Helper()
	err := filepath.WalkDir(b.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || strings.Contains(string(content), text)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// laterThan waits until the clock of the file system is later than a file's creation.
func (b *bench) laterThan(name string) {
	b.t.Helper()
	made, probe := b.dir+"/"+name, filepath.Join(b.t.TempDir(), "now")
	for {
		if err := os.WriteFile(probe, nil, 0o600); err != nil {
			b.t.Fatal(err)
		}
		before, err := os.Stat(made)
		now, also := os.Stat(probe)
		if err != nil || also != nil {
			b.t.Fatal(err, also)
		}
		if now.ModTime().After(before.ModTime()) {
			return
		}
	}
}

// TestNothingIsLostByAMove: OSA-37, a file moved out of the working folder in any way is in the
// working folder afterwards, and the result states where.
func TestNothingIsLostByAMove(t *testing.T) {
	t.Parallel()
	const precious = "precious"
	moves := map[string]string{
		"mv to /tmp":             `mv g.txt /tmp/x; true`,
		"mv to the folder above": `mv g.txt ../x; true`,
		"mv to shared memory":    `mv g.txt /dev/shm/x; true`,
		"mv to TMPDIR":           `mv g.txt "$TMPDIR/x"; true`,
		"mv to HOME":             `mv g.txt ~/x; true`,
		"mv to a hidden name":    `mkdir ~/.cache; mv g.txt ~/.cache/x; true`,
		"mv of a folder":         `mkdir sub; mv g.txt sub/; mv sub "$TMPDIR/"; true`,
		"cp and rm":              `cp g.txt "$TMPDIR/x" && rm g.txt`,
		"rotated":                `mv g.txt "$TMPDIR/x" && echo new > g.txt`,
		"closed":                 `mkdir "$TMPDIR/d"; mv g.txt "$TMPDIR/d/x"; chmod 0 "$TMPDIR/d/x" "$TMPDIR/d"; true`,
		"tar":                    `tar --remove-files -cf "$TMPDIR/x.tar" g.txt; true`,
		"python3":                `python3 -c 'import shutil,os; shutil.move("g.txt", os.environ["TMPDIR"] + "/x")'; true`,
		"ended":                  `mv g.txt "$TMPDIR/x"; kill -9 $$`,
	}

	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		for name, command := range moves {
			t.Run(string(tier)+" "+name, func(t *testing.T) {
				t.Parallel()
				if _, err := os.Stat("/usr/bin/" + name); (name == "tar" || name == "python3") && err != nil {
					t.Skip(err)
				}

				b := onTier(t, tier)
				b.write("g.txt", precious)
				e, _ := b.run(command)
				if !b.holds(precious) {
					t.Fatalf("it is gone: %v", e.Warnings)
				}

				moved := b.text("g.txt") != precious
				if said := strings.Contains(strings.Join(e.Warnings, "\n"), "they are kept in kept-1"); said != moved {
					t.Errorf("moved %t, and it is said: %q", moved, e.Warnings)
				}
				if left, _ := os.ReadDir(b.options.Launcher.Scratch); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

// TestTemporariesAreDiscarded checks that files in temporary places are removed if the working
// folder has lost none. The result names them, except for state of programs.
func TestTemporariesAreDiscarded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ command, said string }{
		"a copy":               {`cp g.txt "$TMPDIR/x"`, "gone: "},
		"beside what is added": {`echo more >> g.txt; echo x > "$TMPDIR/x"`, "gone: "},
		"beside what is new":   {`echo new > new.txt; echo x > "$TMPDIR/x"`, "gone: "},
		"beside a new name":    {`mv g.txt h.txt; echo x > "$TMPDIR/x"`, "gone: "},
		"state":                {`mkdir ~/.cache; echo x > ~/.cache/x`, ""},
		"state, and a removal": {`mkdir ~/.cache; echo x > ~/.cache/x; rm g.txt`, ""},
		"empty folders":        {`mkdir -p "$TMPDIR/a/b"; rm g.txt`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t).confined()
			b.write("g.txt", "precious")
			b.laterThan("g.txt")
			e, _ := b.run(c.command)
			said := strings.Join(e.Warnings, "\n")
			if kept := b.text("kept-1/tmp/x") + b.text("kept-1/home/.cache/x"); kept != "nonenone" {
				t.Errorf("kept: %s", kept)
			}
			if strings.Contains(said, "temporary") != (c.said != "") || !strings.Contains(said, c.said) {
				t.Errorf("it is said: %q", said)
			}
		})
	}
}

// TestMoveIsRefused checks that a move to a temporary place is refused before it happens, with the
// allowed folders.
func TestMoveIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.write("g.txt", "precious")
	for _, command := range []string{"mv g.txt /tmp/x", "mv g.txt ../x", "mv -f -- g.txt /dev/shm", "mv -t /tmp g.txt"} {
		e, _ := b.call("shell_run", map[string]any{"command": command})
		if e.OK || e.Kind != tool.KindRejected || !strings.Contains(e.Message, b.dir) || b.text("g.txt") != "precious" {
			t.Errorf("%s: %+v", command, e)
		}
		if n := b.need(command); n.Refused == nil {
			t.Errorf("%s: somebody would be asked about it", command)
		}
	}

	if e, _ := b.run("mv g.txt h.txt"); b.text("h.txt") != "precious" {
		t.Errorf("%+v", e)
	}
}

// TestRecoverKeeps checks that files moved before the process died are in the working folder after
// the next start.
func TestRecoverKeeps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	scratch, work := filepath.Join(dir, "commands"), filepath.Join(dir, "work")
	for name, text := range map[string]string{
		"commands/rouse-command-1/before.json": `{"roots":["` + work + `"],"owners":[]}`,
		"commands/rouse-command-1/tmp/g.txt":   "precious", "commands/rouse-command-1/home/.cache/x": "x",
		"commands/rouse-sandbox-2/inside/x": "x", "work/kept-1/mine": "mine",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	found, err := shell.Recover(t.Context(), scratch)
	if err != nil || len(found.Kept) != 1 || found.Kept[0] != (shell.Kept{Folder: filepath.Join(work, "kept-2"), Files: 1, Bytes: 8}) {
		t.Errorf("%+v %v", found, err)
	}
	if text, err := os.ReadFile(filepath.Join(work, "kept-2/tmp/g.txt")); err != nil || string(text) != "precious" {
		t.Errorf("%q %v", text, err)
	}
	if left, _ := os.ReadDir(scratch); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestUnkept checks that files that cannot be put back stay and are tried again.
func TestUnkept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := filepath.Join(dir, "commands/rouse-command-1")
	if err := os.MkdirAll(filepath.Join(own, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"before.json": `{"roots":["` + dir + `/work"],"owners":[]}`, "tmp/g.txt": "precious"} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	_, err := shell.Recover(t.Context(), filepath.Join(dir, "commands"))
	if text, read := os.ReadFile(filepath.Join(own, "tmp/g.txt")); err == nil || string(text) != "precious" {
		t.Errorf("%v: %q %v", err, text, read)
	}

	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = shell.Recover(t.Context(), filepath.Join(dir, "commands"))
	if text, read := os.ReadFile(filepath.Join(dir, "work/kept-1/tmp/g.txt")); err != nil || string(text) != "precious" {
		t.Errorf("%v: %q %v", err, text, read)
	}
}

// TestKeptAcrossDisks checks that files on another disk are copied unchanged, and that the rest
// stays when the time is over.
func TestKeptAcrossDisks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	elsewhere, err := os.MkdirTemp("/dev/shm", "rouse-test-") //nolint:usetesting // another disk
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })

	own := filepath.Join(elsewhere, "rouse-command-1")
	made := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	err = errors.Join(os.MkdirAll(filepath.Join(own, "tmp"), 0o700), os.MkdirAll(filepath.Join(b.dir, "work"), 0o700),
		os.WriteFile(filepath.Join(own, "before.json"), fmt.Appendf(nil, `{"roots":[%q],"owners":[]}`, filepath.Join(b.dir, "work")), 0o600),
		os.WriteFile(filepath.Join(own, "tmp/x"), []byte("moved"), 0o640), os.Chtimes(filepath.Join(own, "tmp/x"), made, made), os.Symlink("x", filepath.Join(own, "tmp/link")))
	if err != nil {
		t.Fatal(err)
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := shell.Recover(over, elsewhere); !errors.Is(err, context.Canceled) || len(found.Kept) > 0 || tree(t, b.dir, "work") != "work d 4096\n" {
		t.Errorf("%+v %v\n%s", found, err, tree(t, b.dir, "work"))
	}

	found, err := shell.Recover(t.Context(), elsewhere)
	info, also := os.Stat(filepath.Join(b.dir, "work/kept-1/tmp/x"))
	if err != nil || also != nil || len(found.Kept) != 1 || found.Kept[0].Files != 2 || !info.ModTime().Equal(made) || info.Mode().Perm() != 0o640 || b.text("work/kept-1/tmp/link") != "moved" {
		t.Errorf("%+v %v %v %v", found, err, info, also)
	}
	if left, _ := os.ReadDir(elsewhere); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestKeptAsItWas checks that files on the same disk are moved and not copied, whatever size a
// command gave them.
func TestKeptAsItWas(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.options.Launcher.Scratch = filepath.Join(b.dir, "..", "commands")
	b.write("own.txt", "own")
	b.run(`truncate -s 1G "$TMPDIR/holes"; rm own.txt; true`)

	info, err := os.Stat(filepath.Join(b.dir, "kept-1/tmp/holes"))
	if err != nil {
		t.Fatal(err)
	}
	if sys := info.Sys().(*syscall.Stat_t); info.Size() != 1<<30 || sys.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes take %d", info.Size(), sys.Blocks*512)
	}
}

// within moves the working folder into a folder that another agent may write, next to a folder of
// the owner with a repository. It returns the owner's folder.
func (b *bench) within(t *testing.T) (outer, owners string) {
	t.Helper()
	needGit(t)
	outer, owners = filepath.Join(b.dir, "outer"), filepath.Join(b.dir, "owners")
	inner := filepath.Join(outer, "inner")
	err := errors.Join(os.MkdirAll(inner, 0o755), os.MkdirAll(owners, 0o755), syscall.Mkfifo(filepath.Join(inner, "gate"), 0o600),
		os.WriteFile(filepath.Join(inner, "own.txt"), []byte("own"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", filepath.Join(owners, "project")).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}

	b.write("owners/later", "a name that is masked in the workdir")

	roots, err := tool.NewRootsWithin(nofollow.NewBoundary(outer, inner), inner, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.roots, b.options.Launcher.Roots = roots, roots
	return outer, owners
}

// TestWorkdirSwappedWhileItRuns checks that another agent cannot redirect the host by replacing a
// working folder with a link during a command. The search for repositories and the keeping of files
// happen in the original folder.
func TestWorkdirSwappedWhileItRuns(t *testing.T) {
	t.Parallel()
	for _, tier := range []sandbox.Tier{sandbox.TierNamespaces, sandbox.TierLandlock} {
		t.Run(string(tier), func(t *testing.T) {
			t.Parallel()
			b := onTier(t, tier)
			outer, owners := b.within(t)
			before := tree(t, b.dir, "owners")
			if tier == sandbox.TierNamespaces { // tier A leaves an empty folder there and removes it afterwards
				b.roots.Mask(tool.ProtectedPaths{Hidden: []string{filepath.Join(outer, "inner/later")}})
			}

			swapped := make(chan error, 1)
			go func() {
				// The open returns once the command reads the gate. The command continues once the
				// gate is closed.
				gate, err := os.OpenFile(filepath.Join(outer, "inner/gate"), os.O_WRONLY, 0)
				if err == nil {
					err = errors.Join(os.Rename(filepath.Join(outer, "inner"), filepath.Join(outer, "aside")), os.Symlink(owners, filepath.Join(outer, "inner")), gate.Close())
				}
				swapped <- err
			}()

			e, _ := b.run(`cat gate; mkdir sub; ` + layout("sub/.git", "x") + `mv own.txt "$TMPDIR/x"`)
			if err := <-swapped; err != nil {
				t.Fatal(err)
			}

			if after := tree(t, b.dir, "owners"); after != before {
				t.Errorf("what is the owner's has changed:\n%s\n%s", before, after)
			}
			if b.text("outer/aside/kept-1/tmp/x") != "own" || b.text("outer/aside/sub/disarmed-git-1/config") == "none" {
				t.Errorf("%q\n%s", e.Warnings, tree(t, b.dir, "outer"))
			}
		})
	}
}

// TestRecoverFollowsNoLink checks that Recover does not follow a link in place of a folder that the
// command could write. Moved files wait until the folder is back.
func TestRecoverFollowsNoLink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	outer, owners := b.within(t)
	inner, own := filepath.Join(outer, "inner"), filepath.Join(b.dir, "commands/rouse-command-1")
	b.write("commands/rouse-command-1/before.json", fmt.Sprintf(`{"roots":[%q],"owners":[]}`, inner))
	b.write("commands/rouse-command-1/tmp/x", "moved")
	if err := errors.Join(os.Rename(inner, inner+"-aside"), os.Symlink(owners, inner)); err != nil {
		t.Fatal(err)
	}

	before := tree(t, b.dir, "owners")
	if found, err := shell.Recover(t.Context(), filepath.Dir(own)); err == nil || !strings.Contains(err.Error(), inner+" is a link by now") {
		t.Errorf("%+v %v", found, err)
	}
	if after := tree(t, b.dir, "owners"); after != before || b.text("commands/rouse-command-1/tmp/x") != "moved" {
		t.Errorf("%s\n%s", before, after)
	}

	if err := errors.Join(os.Remove(inner), os.Rename(inner+"-aside", inner)); err != nil {
		t.Fatal(err)
	}
	if found, err := shell.Recover(t.Context(), filepath.Dir(own)); err != nil || len(found.Kept) != 1 || b.text("outer/inner/kept-1/tmp/x") != "moved" {
		t.Errorf("%+v %v", found, err)
	}
}

// TestLinksWhileFilesAreKept checks that a command cannot redirect kept files into a repository
// with links.
func TestLinksWhileFilesAreKept(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := newBench(t).confined()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", filepath.Join(b.dir, "repo")).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	before := tree(t, b.dir, "repo/.git")

	done := make(chan struct{})
	swapping := make(chan struct{})
	go func() { // like a command of the same agent
		defer close(swapping)
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, kept := range []string{"kept-1", "kept-2", "kept-3", "kept-4"} {
				at := filepath.Join(b.dir, kept, "tmp")
				if os.Rename(at, at+"-aside") == nil {
					_ = os.Symlink("../repo/.git/hooks", at)
					_ = os.Remove(at)
					_ = os.Rename(at+"-aside", at)
				}
			}
		}
	}()

	for i := range 4 {
		b.write("own.txt", "own")
		// Whether the command starts, and which files are kept, depends on the timing of the swaps.
		b.call("shell_run", map[string]any{"command": fmt.Sprintf(`for i in $(seq 200); do echo 'touch canary' > "$TMPDIR/post-checkout-%d-$i"; done; rm own.txt`, i)})
	}
	close(done)
	<-swapping
	if after := tree(t, b.dir, "repo/.git"); after != before {
		t.Errorf("a file got into the repository:\n%s", after)
	}
}
