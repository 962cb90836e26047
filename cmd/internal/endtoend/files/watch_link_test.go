package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestLinkInsteadOfWatchedFolder replaces a watched folder with a link that an agent could have
// made. Neither the watcher nor the owner's commands may follow the link. All views of the job must
// report it until the folder is back.
func TestLinkInsteadOfWatchedFolder(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links cannot be made here")
	}

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: a, workdir: ./work}]
jobs: [{name: inbox, agent: a, watch: {path: ./work/in, responsiveness: fast, on_success: {move: ./work/done}}, playbook: [{call: db_schema}]}]
`, "work/in/keep.part": "", "secret/s.txt": "private"}), "rouse.yaml")
	in, aside := filepath.Join(filepath.Dir(config), "work", "in"), filepath.Join(filepath.Dir(config), "aside")
	p := endtoend.Serve(t, config)
	says := func(line string) string {
		cmd := endtoend.Rouse(t, append(strings.Fields(line), "--config", config)...)
		_ = cmd.Run() // doctor exits 1 if it finds a problem
		return cmd.Out.String() + cmd.Err.String()
	}
	told := func(want bool) {
		t.Helper()
		for _, line := range []string{"status", "status --json", "doctor", "jobs --json", "why inbox"} {
			// The daemon checks a problem every two seconds.
			cmdtest.Until(t, fmt.Sprintf("rouse %s says that there is a link: %t", line, want), func() bool {
				return strings.Contains(says(line), "is a link, and lies in") == want
			})
		}
	}

	told(false)
	if err := errors.Join(os.Rename(in, aside), os.Symlink(filepath.Join(filepath.Dir(config), "secret"), in)); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the link is told of", func() bool { return strings.Contains(says("status"), "▲ inbox: ") })
	told(true)
	if got := says("logs"); strings.Count(got, "watch.link") != 1 {
		t.Errorf("the event is not there once:\n%s", got)
	}
	if got := says("run inbox --file " + filepath.Join(in, "s.txt")); !strings.Contains(got, "is a link") {
		t.Errorf("a file behind the link was taken: %s", got)
	}

	if err := errors.Join(os.Remove(in), os.Rename(aside, in)); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the folder is watched again", func() bool { return !strings.Contains(says("status"), "▲ inbox: ") })
	told(false)
	p.Stop(t)
}
