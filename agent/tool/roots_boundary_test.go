package tool_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/nofollow"
)

// TestRootsWithinAnotherAgent checks folders of an agent that lie in another agent's folder. The
// other agent can replace them with links, but neither the grants nor the opened files may follow
// the links.
func TestRootsWithinAnotherAgent(t *testing.T) {
	y := newYard(t)
	b := nofollow.NewBoundary(y.at("outer"))
	for _, dir := range []string{"outer/work", "outer/shared"} {
		if err := os.MkdirAll(y.at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(y.at("outer/work/a"), []byte("open"), 0o600), os.WriteFile(y.at("outer/shared/d"), []byte("open"), 0o600)); err != nil {
		t.Fatal(err)
	}

	grants := []tool.Grant{{Path: y.at("outer/shared")}, {Path: y.at("outer/shared/d"), File: true}}
	before, err := tool.NewRootsWithin(b, y.at("outer/work"), grants)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a", y.at("outer/shared/d")} {
		if text, err := read(before, path); text != "open" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}

	for _, dir := range []string{"work", "shared"} {
		if err := errors.Join(os.Rename(y.at("outer/"+dir), y.at("outer/old-"+dir)), os.Symlink(y.at("extra2"), y.at("outer/"+dir))); err != nil {
			t.Fatal(err)
		}
	}

	for _, path := range []string{"d", y.at("outer/work/d"), y.at("outer/shared/d"), y.at("outer/shared")} {
		var bad *tool.Refusal
		if text, err := read(before, path); !errors.As(err, &bad) || bad.Kind != tool.KindRejected || !strings.Contains(bad.Message, "is a link") {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if p, err := before.Resolve("new", true); err == nil {
		p.Close()
		t.Error("a file could be made behind the link")
	}
	if reads, writes := before.ProgramPaths([]string{y.at("outer/shared/d")}); len(reads)+len(writes) > 0 {
		t.Errorf("a program is given %q and %q", reads, writes)
	}

	// A run that begins now has no usable workdir.
	var link *nofollow.LinkError
	if _, err := tool.NewRootsWithin(b, y.at("outer/work"), grants); !errors.As(err, &link) || link.Path != filepath.Join(y.base, "outer", "work") {
		t.Errorf("%v", err)
	}
}
