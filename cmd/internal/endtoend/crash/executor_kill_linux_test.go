package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

const executorKillConfig = `version: 1
home: ./home
agents:
  - name: coder
    workdir: ./work
    database: {enabled: false}
    executor: {argv: [%[1]s/bin/agent], output: text, env: {TREE_OF: %[1]s}}
jobs:
  - {name: mend, agent: coder, prompt: Mend it., notify: {on: []}}
`

// slowAgent changes files and never ends, and neither does its child process. If the file finish
// exists, it does its work at once.
const slowAgent = `#!/bin/sh
cat > /dev/null
if [ -e finish ]; then echo "It is mended."; exit; fi
echo changed > old.txt
rm gone.txt
mkdir -p new && echo new > new/deep.txt
sleep 600 &
echo begun > begun.txt
sleep 600
`

// TestExecutorKill kills the daemon while an agent program works. After the restart none of its
// processes may run, its call is uncertain, and the run must not be repeated without a question.
// Changes of the program before the kill can be undone.
func TestExecutorKill(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"stop", "again"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			dir := cmdtest.Write(t, map[string]string{"bin/agent": slowAgent, "work/old.txt": "old\n", "work/gone.txt": "bye\n"})
			config, work := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "work")
			if err := os.WriteFile(config, fmt.Appendf(nil, executorKillConfig, dir), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "bin", "agent"), 0o755); err != nil {
				t.Fatal(err)
			}

			p := endtoend.Serve(t, config)
			endtoend.RunJSON(t, nil, "run", "mend", "--json", "--config", config)
			cmdtest.Until(t, "its changes", func() bool { return contentOf(work, "begun.txt") != "" })
			if treeOf(t, dir) == 0 {
				t.Fatal("no process of the program is found while it works")
			}
			var b api.HomeBackup
			endtoend.RunJSON(t, &b, "backup", filepath.Join(dir, "copies"), "--json", "--config", config)
			if kept, err := filepath.Glob(filepath.Join(b.Path, "home", "before", "*")); err != nil || len(kept) != 1 {
				t.Errorf("of what the files were before the backup has %v (%v)", kept, err)
			}
			p.Kill(t)

			p = endtoend.Serve(t, config)
			cmdtest.Until(t, "the end of its processes", func() bool { return treeOf(t, dir) == 0 })
			var items []api.Item
			cmdtest.Until(t, "the question", func() bool {
				endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
				return len(items) > 0
			})
			if len(items) != 1 || items[0].Kind != "recovery" {
				t.Fatalf("its owner is asked %+v", items)
			}
			if shown := endtoend.MustRun(t, "show", "1", "--config", config); !strings.Contains(shown, "uncertain") {
				t.Errorf("the call is not uncertain:\n%s", shown)
			}

			if answer == "again" {
				if err := os.WriteFile(filepath.Join(work, "finish"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			endtoend.RunJSON(t, nil, "answer", items[0].ID, answer, "--json", "--config", config)
			var runs []api.Run
			cmdtest.Until(t, "the end of the run", func() bool {
				endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
				return runs[0].State == "finished"
			})
			if ended := string(runs[0].Outcome); len(runs) != 1 || (ended == "success") != (answer == "again") {
				t.Errorf("the runs are %+v", runs)
			}

			endtoend.MustRun(t, "undo", "1", "--config", config)
			for name, content := range map[string]string{"old.txt": "old\n", "gone.txt": "bye\n", "new/deep.txt": "", "begun.txt": ""} {
				if got := contentOf(work, name); got != content {
					t.Errorf("after the undo %s holds %q", name, got)
				}
			}
			p.Stop(t)
			endtoend.AuditClean(t, config)
		})
	}
}

// contentOf returns the content of a file, or "" if there is none.
func contentOf(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return string(text)
}

// treeOf counts the processes with the environment of the program.
func treeOf(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		env, err := os.ReadFile(file) // unreadable for other users' and ended processes
		if err == nil && strings.Contains("\x00"+string(env), "\x00TREE_OF="+dir+"\x00") {
			n++
		}
	}
	return n
}
