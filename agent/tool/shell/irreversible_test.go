package shell_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// TestIrreversible checks which commands count as external effects because they remove or overwrite
// files beyond undo. Commands that only read or create files, or that can be undone, do not. No
// command here is run.
func TestIrreversible(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t)
	b.options.Grants = []shell.Grant{{Argv: []string{"python3", "tidy.py"}}, {Argv: []string{"bash", "-c", "*"}}}
	if b.tier() == "D" {
		t.Skip("everything that is not confined counts as an effect beyond the host")
	}

	work := b.options.Launcher.Roots.Workdir()
	for name, text := range map[string]string{"kept.txt": "text\n", "other.txt": "text\n", "dir/kept.txt": "text\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(work, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	check := func(command string, want bool) {
		t.Helper()
		if n := b.need(command); n.Refused != nil || (n.AddsTaint&tool.Outward != 0) != want {
			t.Errorf("%s: irreversible: %t, want %t (%+v)", command, !want, want, n.Refused)
		}
	}

	for _, command := range []string{
		"unlink kept.txt", "rm -r dir", "rm ./none *", "./rm kept.txt", "/bin/rm kept.txt", "shred -u kept.txt", "truncate -s 0 kept.txt", "rmdir dir",
		"find . -delete", "find . -name '*.txt' -exec rm {} ;", "find . -execdir truncate -s 0 {} +", "find . -fprint kept.txt", "find . $WHAT",
		"> kept.txt", ": > kept.txt", "echo x > kept.txt", "echo x >| kept.txt", "echo x &> kept.txt", "cat none > ./dir/../kept.txt", "cd dir && echo x > new", "echo x > $F", "sort other.txt > k*.txt",
		"dd if=/dev/null of=kept.txt", "dd of=$F", "echo x | tee kept.txt", "echo x | tee -- kept.txt",
		"mv -n2 a b; mv other.txt dir/kept.txt", "mv --backup other.txt kept.txt", "cp -r other.txt kept.txt", "cp -a dir/kept.txt .", "cp -t dir kept.txt", "install other.txt kept.txt", "ln -sf other.txt kept.txt", "true; mv other.txt kept.txt", "mv $A new",
		"sed -i s/a/b/ kept.txt", "sed -ni p kept.txt", "sed 'w kept.txt' other.txt", "sed s/a/b/e other.txt", "awk '{print > \"kept.txt\"}' other.txt", "awk -f x other.txt", "perl -pi -e s/a/b/ kept.txt",
		"sort -o kept.txt kept.txt", "gzip kept.txt", "xz -9 kept.txt", "zip -m a.zip kept.txt", "tar xf a.tar", "tar -xzf a.tar", "tar -c --remove-files -f a.tar dir", "unzip -o a.zip", "rsync -a a/ b/",
		"git clean -fd", "git checkout .", "git -C dir reset --hard", "patch -p1",
		"python3 -c 'import os; os.remove(\"kept.txt\")'", "python3 other.py", "node x.js", "make clean", "sh x.sh", "bash x.sh", "sh < other.txt", "echo 'rm kept.txt' | sh", "source x.sh", "eval rm kept.txt", "trap 'rm kept.txt' EXIT",
		"curl -s -o kept.txt http://x", "wget -O kept.txt http://x", "pandoc other.txt --output=kept.txt", "openssl enc -in other.txt -out kept.txt", "ex -sc x kept.txt", "sort other.txt | sponge kept.txt",
		"bash -c 'rm kept.txt'", "bash -o pipefail -c 'echo x > kept.txt'", `sh -ec "sh -c 'unlink kept.txt'"`, "bash -c \"$X\"", "ls | xargs rm", "xargs -n 1 unlink", "env A=1 nice -n 5 rm kept.txt", "timeout 5 shred kept.txt",
		"$CMD kept.txt", "$(echo rm) kept.txt", "f() { unlink kept.txt; }; f", "if true; then rm kept.txt; fi", "(rm kept.txt) &",
	} {
		check(command, true)
	}

	for _, command := range []string{
		"rm kept.txt", "rm -f none kept.txt", "rm none", "mv other.txt kept.txt", "cp other.txt kept.txt", "cp other.txt new.txt", "mv dir elsewhere", "mkdir -p a/b", "cp -r dir copy", "mv -n other.txt kept.txt",
		"cat kept.txt", "ls -la", "grep -r text .", "find . -name '*.txt' -print", "sort kept.txt", "sed s/a/b/ kept.txt", "sed -n '1,5p' kept.txt", "awk '{print $1}' kept.txt", "gzip -c kept.txt", "zcat a.gz", "gunzip -k a.gz",
		"pdftotext a.pdf a.txt", "tar -tf a.tar", "tar -czf new.tar dir", "tar -xkf a.tar", "git status", "git log --oneline", "python3 tidy.py", "python3 --version", "ln -s kept.txt new",
		"echo x > new.txt", "echo x >> kept.txt", "ls 2>/dev/null", "ls > /dev/null 2>&1", "cat kept.txt | tee new.txt", "tee -a kept.txt < other.txt", "dd if=kept.txt of=new.txt", "cp other.txt new.txt; echo x >> new.txt",
		"bash -c 'cat kept.txt | sort > new.txt'", "echo 'rm kept.txt'", "pandoc other.txt -o new.html", "grep -o kept.txt other.txt", "for i in 1 2; do echo $i; done",
	} {
		check(command, false)
	}

	// Undo does not restore files that are too large or outside its folder.
	if err := os.Truncate(filepath.Join(work, "kept.txt"), 64<<20); err != nil {
		t.Fatal(err)
	}
	check("rm kept.txt", true)
	check("mv other.txt kept.txt", true)
	if !strings.Contains(b.need("rm kept.txt").Shown, "rm kept.txt") {
		t.Error("it is not shown")
	}
}
