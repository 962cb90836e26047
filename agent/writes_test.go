package agent_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// tree returns the content of each file below a folder. Folders have a trailing slash.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(folder, path)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			out[rel+"/"] = ""
		case d.Type().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out[rel] = string(raw)
		default:
			out[rel] = d.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestWriteGrantsNarrow checks that with grants.write, every tool of an agent can change only files
// below these folders, although the agent can read its workdir and its other grants.
func TestWriteGrantsNarrow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	clerk := b.plan.Agents["clerk"]
	work, other := clerk.Workdir, filepath.Join(b.dir, "other")
	clerk.Write, clerk.Read = []string{filepath.Join(work, "out")}, []string{other}
	b.plan.Agents["clerk"] = clerk
	type with = map[string]any

	// Each place has a file a.txt and a folder sub with a file.
	attempts := func(at string) map[string][]playbook.Call {
		a, n, sub := filepath.Join(at, "a.txt"), filepath.Join(at, "new.txt"), filepath.Join(at, "sub")
		return map[string][]playbook.Call{
			"file_write":  {{Name: "file_write", With: with{"path": a, "content": "changed"}}, {Name: "file_write", With: with{"path": n, "content": "new"}}},
			"file_edit":   {{Name: "file_edit", With: with{"path": a, "old_text": "a", "new_text": "b"}}},
			"dir_create":  {{Name: "dir_create", With: with{"path": filepath.Join(at, "made")}}},
			"file_move":   {{Name: "file_move", With: with{"from": a, "to": filepath.Join(at, "moved.txt")}}, {Name: "file_move", With: with{"from": sub, "to": filepath.Join(at, "moved")}}},
			"file_copy":   {{Name: "file_copy", With: with{"from": a, "to": filepath.Join(at, "copy.txt")}}, {Name: "file_copy", With: with{"from": sub, "to": filepath.Join(at, "copies")}}},
			"file_delete": {{Name: "file_delete", With: with{"path": a}}, {Name: "file_delete", With: with{"path": sub, "recursive": true}}},
			"db_export":   {{Name: "db_export", With: with{"path": filepath.Join(at, "rows.csv"), "sql": "select 1 n"}}},
		}
	}
	fill := func() {
		for _, folder := range []string{work, filepath.Join(work, "out"), other} {
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"a.txt": "a", "sub/a.txt": "a"} {
				path := filepath.Join(folder, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	job := 0
	run := func(call playbook.Call) ledger.Result {
		job++
		name := fmt.Sprint("j", job)
		b.plan.Jobs[name] = plan.Job{Name: name, Agent: "clerk", Playbook: []playbook.Call{call}}
		return b.run(b.enqueue(ledger.Request{Job: name, Agent: "clerk"}))
	}

	// Every tool that writes files must be covered.
	tried := attempts(work)
	noFiles := []string{"web_fetch", "git_commit", "workspace_manage", "run_manage", "host_filesystem_write"} // it calls file_write
	for _, s := range agent.Specs() {
		files := s.Writes == tool.WritesFiles || s.Writes == tool.WritesElsewhere && s.Requires != tool.RequiresExecutor && s.Requires != tool.RequiresModule
		if files && s.AliasOf == "" && tried[s.Name] == nil && !slices.Contains(noFiles, s.Name) {
			t.Errorf("%s is not tried", s.Name)
		}
	}

	for _, at := range []struct {
		folder string
		may    bool
	}{{filepath.Join(work, "out"), true}, {work, false}, {other, false}, {filepath.Join(work, "out", "..", "sub"), false}} {
		calls := attempts(at.folder)
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			for _, call := range calls[name] {
				fill()
				before := tree(t, b.dir)
				res := run(call)
				after := tree(t, b.dir)
				for path := range before {
					if strings.HasPrefix(path, "agents/") || strings.HasPrefix(path, "ledger") {
						delete(before, path)
					}
				}
				for path := range after {
					if strings.HasPrefix(path, "agents/") || strings.HasPrefix(path, "ledger") || before[path] == after[path] && path[len(path)-1] != '/' {
						delete(before, path)
						delete(after, path)
					}
				}
				changed := !maps.Equal(before, after)
				if changed != at.may || (res.Outcome == domain.OutcomeSuccess) != at.may {
					t.Errorf("%s %v: %s %s; before %v, after %v", call.Name, call.With, res.Outcome, res.Error, before, after)
				}
			}
		}
	}

	// A file can be copied, but not moved, from a folder that the agent can only read.
	fill()
	copied := filepath.Join(work, "out", "b.txt")
	if res := run(playbook.Call{Name: "file_copy", With: with{"from": filepath.Join(other, "a.txt"), "to": copied}}); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
	if res := run(playbook.Call{Name: "file_move", With: with{"from": filepath.Join(work, "a.txt"), "to": filepath.Join(work, "out", "c.txt")}}); res.Outcome == domain.OutcomeSuccess {
		t.Errorf("it moved away what it only reads: %+v", res)
	}
	if raw, err := os.ReadFile(copied); err != nil || string(raw) != "a" {
		t.Errorf("%q %v", raw, err)
	}
}

// TestWriteGrantsNarrowPrograms checks that grants.write restricts the agent's programs like its
// tools.
func TestWriteGrantsNarrowPrograms(t *testing.T) {
	t.Parallel()
	confined(t)
	b := setup(t)
	b.put("work/a.txt", "a", "work/out/a.txt", "a", "other/a.txt", "a", "beside/a.txt", "a")
	clerk := b.plan.Agents["clerk"]
	work, other := clerk.Workdir, filepath.Join(b.dir, "other")
	clerk.Write, clerk.Read = []string{filepath.Join(work, "out")}, []string{other}
	script := `for d in "$1" "$1/out" "$2" "$3"; do
  echo x 2>/dev/null >>"$d/a.txt"; echo x 2>/dev/null >"$d/new.txt"; mkdir "$d/made"; mv "$d/a.txt" "$d/b.txt"; ln -s /etc "$d/link"; done
ln "$1/a.txt" "$1/out/hard"; mv "$1/out" "$1/away"; cat "$1/a.txt" "$2/a.txt"; exit 0`
	clerk.Commands = []shell.Grant{{Argv: []string{"sh", "-c", script, "sh", work, other, filepath.Join(b.dir, "beside")}}}
	b.plan.Agents["clerk"] = clerk

	quoted := ""
	for _, word := range clerk.Commands[0].Argv {
		quoted += " '" + word + "'"
	}
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{{Name: "shell_run", With: map[string]any{"command": quoted[1:]}}}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}
	if _, text := b.calls(id, 1); !strings.Contains(text, `"stdout":"aa"`) {
		t.Errorf("it could not read: %s", text)
	}

	for _, folder := range []string{"other", "beside"} {
		if got := tree(t, filepath.Join(b.dir, folder)); len(got) != 2 || got["a.txt"] != "a" {
			t.Errorf("%s was changed: %v", folder, got)
		}
	}
	got := tree(t, work)
	if got["a.txt"] != "a" || got["new.txt"] != "" || got["out/b.txt"] != "ax\n" || got["out/new.txt"] != "x\n" {
		t.Errorf("%v", got)
	}
	for path := range got {
		if path != "./" && path != "a.txt" && !strings.HasPrefix(path, "out/") {
			t.Errorf("%s was made", path)
		}
	}
}

// TestWriteGrantIsMade checks that the first run creates a missing folder of grants.write.
func TestWriteGrantIsMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	clerk := b.plan.Agents["clerk"]
	clerk.Write = []string{filepath.Join(clerk.Workdir, "out", "deep")}
	b.plan.Agents["clerk"] = clerk
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{{Name: "file_write", With: map[string]any{"path": "out/deep/a.txt", "content": "a"}}}}
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}
	if got := tree(t, clerk.Workdir); got["out/deep/a.txt"] != "a" {
		t.Errorf("%v", got)
	}
}
