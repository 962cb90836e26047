package gitview

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestParse compares the parser with git itself.
func TestParse(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	for name, text := range map[string]string{
		"plain":         "[core]\n\tbare = false\n\trepositoryformatversion=0\n",
		"one line":      "[core] bare = true\n[Remote \"Ori gin\"] URL = x ; y\n",
		"quotes":        "[a]\nb = \"x # y\" z  # comment\nc = \"a\\\"b\\\\c\\td\"\n",
		"continuation":  "[a]\nb = one \\\ntwo\n[c]\nd\n",
		"old sections":  "[remote.Origin]\nurl = x\n",
		"subsection":    "[a \"b\\\"c\\\\d\"]\ne = f\n",
		"CRLF":          "[core]\r\n\tbare = false\r\n",
		"comments":      "# x\n[core] ; y\nbare = no#z\n",
		"BOM":           "\xef\xbb\xbf[core]\nbare = false\n",
		"last line":     "[core]\nbare",
		"open quote":    "[a]\nb = \"x\n",
		"bad escape":    "[a]\nb = \\x\n",
		"bad header":    "[a b]\nc = d\n",
		"bad name":      "[a]\n1c = d\n",
		"split quote":   "[a \"b\nc\"]\nd = e\n",
		"no equals":     "[a]\nb c\n",
		"header at end": "[a",
	} {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, failed := exec.CommandContext(t.Context(), "git", "config", "--file", path, "--no-includes", "--null", "--list").Output()
		all, _, err := parse([]byte(text))
		if (err != nil) != (failed != nil) {
			t.Errorf("%s: %v, and git says %v", name, err, failed)
			continue
		}
		var got, want []string
		for _, s := range all {
			name := s.section
			if s.named {
				name += "." + s.sub
			}
			got = append(got, name+"."+s.key+"\n"+s.value)
		}
		for entry := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
			if key, value, ok := strings.Cut(entry, "\n"); ok {
				want = append(want, key+"\n"+value)
			} else if key != "" {
				want = append(want, key+"\ntrue")
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, and git says %q", name, got, want)
		}
	}
}

// TestView: a view contains no programs, no other files and no credentials.
func TestView(t *testing.T) {
	t.Parallel()
	for config, whole := range map[string]bool{
		"": true, "[core]\nbare = false\n[user]\nname = \"A \\\"B\\\"\"\n": true, "[remote \"x\"]\nurl = git@h:a/b.git\nfetch = +a:b\n": true, "[remote \"x\"]\nurl = ssh://git@h/b\n": true,
		"[remote \"x\"]\nurl = https://h/b.git\n": true, "[branch \"a\"]\nremote = x\nmerge = refs/heads/a\n": true, "[remote \"x\"]\nurl = /srv/x.git\n": true,
		"[remote \"x\"]\nurl = https://SECRET@h/b\n": false, "[remote \"x\"]\nurl = ssh://a:SECRET@h/b\n": false, "[remote \"x\"]\nurl = a:SECRET@h:b\n": false, "[remote \"x\"]\nurl = https://h/b?t=SECRET\n": false,
		"[remote \"x\"]\nurl = \"ext::sh -c SECRET\"\n": false, "[http]\nextraHeader = SECRET\n": false, "[core]\nfsmonitor = SECRET\n": false, "[core]\nhooksPath = SECRET\n": false,
		"[include]\npath = SECRET\n": false, "[includeIf \"gitdir:**\"]\npath = SECRET\n": false, "[filter \"x\"]\nclean = SECRET\n": false, "[core]\nworktree = SECRET\n": false,
		"[credential]\nhelper = SECRET\n": false, "# SECRET\n": false, "[core]\nbare = false ; SECRET\n": false, "[submodule \"x\"]\nupdate = !SECRET\n": false,
		"[core \"x\"]\nbare = SECRET\n": false, "[url \"https://SECRET@h/\"]\ninsteadOf = x\n": false, "[core]\nsshCommand = SECRET\n": false, "[extensions]\nworktreeConfig = SECRET\n": false,
	} {
		v, err := New([]byte(config))
		if err != nil || v.Whole != whole || strings.Contains(v.Config(""), "SECRET") {
			t.Errorf("%q: %v %v\n%s", config, v.Whole, err, v.Config(""))
		}
		again, err := New([]byte(v.Config("")))
		if err != nil || again.Whole {
			t.Errorf("%q: its view is damaged or lacks the fixed settings: %v", config, err)
		}
	}
}
