package dashboard_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The branch of a run is shown with its changes, waits in the inbox, and is merged by one click.
func TestCheckout(t *testing.T) {
	app := t.TempDir()
	git := func(args ...string) string {
		c := exec.Command("git", args...)
		c.Dir, c.Env = app, append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Skip("git: ", string(out), err)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.WriteFile(filepath.Join(app, "sum.sh"), []byte("echo <b>2</b>\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	git("config", "user.name", "Owner")
	git("config", "user.email", "owner@example.com")
	git("add", ".")
	git("commit", "-q", "-m", "first")

	h := open(t, `version: 1
home: ./home
agents: [{name: coder, database: {enabled: false}, checkout: {repo: `+app+`}, grants: {commands: [{argv: [git, "*"]}]}}]
jobs:
  - name: mend
    agent: coder
    playbook:
      - {call: file_read, with: {path: sum.sh}}
      - {call: file_write, with: {path: sum.sh, content: "echo 5\n"}}
      - {call: shell_run, with: {command: "git commit -q -a -m 'It is <i>five</i>'"}}
`, nil)
	ran := h.fire("mend")
	if ran.Outcome != "success" {
		t.Skip("programs cannot be confined here: ", ran.Error)
	}
	h.expect("/runs/"+ran.ID, "rouse/mend-"+ran.ID, "It is &lt;i&gt;five&lt;/i&gt;", "+echo 5", "Merge", "Cherry-pick", "Discard")
	h.expect("/inbox", "rouse/mend-"+ran.ID, "Merge")
	h.done("/runs/" + ran.ID + "/apply")
	if got := git("log", "-1", "--format=%s", "main"); got != "It is <i>five</i>" {
		t.Errorf("main is at %q", got)
	}
	h.expect("/runs/"+ran.ID, "Applied to")
	h.done("/runs/" + ran.ID + "/discard")
	if left := git("branch", "--list", "rouse/*"); left != "" {
		t.Errorf("%s is left", left)
	}
}
