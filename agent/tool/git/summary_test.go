package git_test

import (
	"fmt"
	"strings"
	"testing"

	"rouse/agent/tool/git"
)

// TestSummary: OSA-39, a prompt lists the changed paths, quoted and redacted, within its limit. It
// lists nothing for a folder that is not a repository.
func TestSummary(t *testing.T) {
	inOrder(t)
	b := newBench(t)
	b.committed()
	told := func(most int) string {
		return git.Summary(t.Context(), b.host, "clerk", strings.NewReplacer("hunter2", "[secret]").Replace, most)
	}
	b.write(".git/info/exclude", "canaries\n")
	if got := told(2000); got != "Nothing has changed since the last commit.\n" {
		t.Errorf("%q", got)
	}

	b.write("a", "two\n")
	b.write("b", "two\n")
	b.git("add", "b")
	b.write("hunter2\nnot staged", "x")
	want := "Changed since the last commit:\nmodified \"b\" (staged)\nmodified \"a\" (not staged)\nuntracked \"[secret]\\nnot staged\"\n"
	if got := told(2000); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}

	for i := range 200 {
		b.write(fmt.Sprintf("new/%03d", i), "x")
	}
	if got := told(2000); len(got) > 2100 || !strings.HasSuffix(got, "\n… and 153 more paths: git_status has them\n") {
		t.Errorf("%d bytes, %s", len(got), got)
	}
	if got := told(100); len(got) > 150 || !strings.HasSuffix(got, "more paths: git_status has them\n") {
		t.Errorf("%s", got)
	}

	b.write(".git/HEAD", "nonsense")
	if got := told(2000); got != "" {
		t.Errorf("of what is no repository: %q", got)
	}
}
