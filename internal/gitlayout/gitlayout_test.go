package gitlayout_test

import (
	"maps"
	"testing"

	"rouse/internal/gitlayout"
)

// The names that git itself refuses in a tree.
func TestIsGitName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".git", ".GIT", ".Git", ".git.", ".git ", ".git. .", "git~1", "GIT~1", ".git::$INDEX_ALLOCATION", ".git:x", `.git\config`, ".g\u200cit", "\ufeff.git", ".gi\u202et", ".git\u206f "} {
		if !gitlayout.IsName(name) {
			t.Errorf("%+q is none", name)
		}
	}
	for _, name := range []string{"git", ".gitignore", ".gitattributes", ".github", "a.git", "git~", "git~12", ". git", "disarmed-git-1", "", "."} {
		if gitlayout.IsName(name) {
			t.Errorf("%+q is one", name)
		}
	}
}

// Each entry by which git would find a repository gets a unique new name.
func TestDisarm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names []string
		want  map[string]string
	}{
		{[]string{"a", "HEAD", "objects", "config"}, nil},
		{[]string{".git", "a"}, map[string]string{".git": "disarmed-git-1"}},
		{[]string{".GIT", ".git", "disarmed-git-1"}, map[string]string{".GIT": "disarmed-git-2", ".git": "disarmed-git-3"}},
		{[]string{"refs", "Objects", "HEAD", "head"}, map[string]string{"HEAD": "disarmed-HEAD-1", "head": "disarmed-HEAD-2"}},
		{[]string{"HEAD", "commondir"}, map[string]string{"HEAD": "disarmed-HEAD-1"}},
	} {
		if got := gitlayout.Disarm(c.names); !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.names, got, c.want)
		}
	}
}
