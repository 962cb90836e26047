package checkout_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"rouse/agent/checkout"
)

// BenchmarkMake makes clones of a repository with 100,000 objects and 20,000 files: the first clone
// including its mirror, the others with an existing mirror.
func BenchmarkMake(b *testing.B) {
	repo := filepath.Join(b.TempDir(), "large")
	run := func(in []byte, args ...string) string {
		c := exec.CommandContext(b.Context(), "git", append([]string{"-C", repo}, args...)...)
		c.Stdin = bytes.NewReader(in)
		out, err := c.Output()
		if err != nil {
			b.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	if err := os.Mkdir(repo, 0o700); err != nil {
		b.Fatal(err)
	}
	run(nil, "init", "-q", "-b", "main")

	var in bytes.Buffer
	file := func(n, version int) {
		content := bytes.Repeat(fmt.Appendf(nil, "line of file %d, version %d\n", n, version), 20)
		fmt.Fprintf(&in, "M 100644 inline d%d/e%d/f%d.txt\ndata %d\n%s\n", n%20, n/20%50, n, len(content), content)
	}
	for i := range 16_000 {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter A <a@example.com> %d +0000\ndata 4\nwork\n", 1_700_000_000+i)
		if i == 0 {
			for n := range 20_000 {
				file(n, 0)
			}
		} else {
			file(i*7%20_000, i)
		}
	}
	run(in.Bytes(), "fast-import", "--quiet")
	run(nil, "repack", "-adq")
	b.Log(run(nil, "count-objects", "-v"))

	s := &checkout.Store{Dir: filepath.Join(b.TempDir(), "checkouts")}
	n := 0
	clone := func(b *testing.B) {
		n++
		if _, err := s.Make(b.Context(), strconv.Itoa(n), checkout.Spec{Repo: repo, Ref: "main", Branch: fmt.Sprint("rouse/", n)}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if err := os.RemoveAll(s.Dir); err != nil {
				b.Fatal(err)
			}
			clone(b)
		}
	})
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			clone(b)
		}
	})
}
