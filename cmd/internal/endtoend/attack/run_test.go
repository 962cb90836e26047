package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
)

// runAttack makes the runs of an attack and checks the results.
func (b *attackSuite) runAttack(t *testing.T, a attackCase) {
	for _, program := range a.Needs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}

	w := b.fixtures[a.Name]
	if a.Refused != "" {
		b.checkRefused(t, a)
		return
	}

	for i, s := range a.stages() {
		if i > 0 { // a later run may find what the first one left
			if err := b.client.Post(t.Context(), "/v1/reload", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		b.runStage(t, w, a, s, fmt.Sprintf("%s-%d", a.Name, i+1))
	}

	if a.Status {
		w.ownersStatus(t)
	}

	now := w.settledSnapshot(t, a)
	for name, was := range w.outside {
		if now[name] != was {
			t.Errorf("%s was %s and is %s", name, was, now[name])
		}
		delete(now, name)
	}

	for name := range now {
		if !slices.Contains(a.Made, name) {
			t.Errorf("%s was created", name)
		}
	}

	if n := w.net.asked.Load(); n > 0 {
		t.Errorf("%d connections where nobody may ask", n)
	}

	for _, text := range a.Untold {
		if told := leaks(w.log.String(), text); told != "" {
			t.Errorf("a server got %s: %s", told, w.log.String())
		}
	}

	for _, canary := range []string{w.unseen, secretCanary, modelCanary, environCanary} {
		if told := leaks(w.log.String(), canary); told != "" {
			t.Errorf("a server got %s: %s", told, w.log.String())
		}
		for name, m := range w.models {
			for _, r := range m.Requests() {
				if told := leaks(string(r), canary); told != "" {
					t.Errorf("the model %s got %s", name, told)
				}
			}
		}
	}

	cmdtest.Until(t, "the end of all processes in "+w.dir, func() bool { return len(processesIn(t, w.dir)) == 0 })
	var st api.Status
	if err := b.client.Get(t.Context(), "/v1/status", nil, &st); err != nil || !st.Ready || len(st.ConfigProblems) > 0 {
		t.Errorf("the daemon: %+v %v", st, err)
	}
}

// ownersStatus runs git status in each folder as the owner would, with the owner's git settings and
// hooks.
func (w *fixture) ownersStatus(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	err := filepath.WalkDir(filepath.Join(w.dir, "work"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		cmd := exec.CommandContext(t.Context(), "git", "status")
		cmd.Dir, cmd.Env = path, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1"}
		_ = cmd.Run() // most folders are not repositories
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkRefused checks that the agent of an attack cannot be configured.
func (b *attackSuite) checkRefused(t *testing.T, a attackCase) {
	t.Helper()
	path := filepath.Join(b.dir, a.Name+".yaml")
	if err := os.WriteFile(path, b.configuration(t, []attackCase{a}), 0o600); err != nil {
		t.Fatal(err)
	}

	p := endtoend.Rouse(t, "config", "check", "--config", path)
	p.Env = append(p.Env, "HOME="+filepath.Join(b.dir, "user"), "ROUSE_SECRET_BANK="+secretCanary)
	if err := p.Run(); err == nil || !regexp.MustCompile(a.Refused).MatchString(p.Out.String()) {
		t.Errorf("%v %s%s, want %q", err, p.Out.String(), p.Err.String(), a.Refused)
	}
}

// runStage makes one run, answers its questions as the owner, and checks the record.
func (b *attackSuite) runStage(t *testing.T, w *fixture, a attackCase, s Stage, job string) {
	t.Helper()
	for from, to := range s.Moved {
		if err := errors.Join(os.MkdirAll(filepath.Dir(w.at(to)), 0o755), os.Rename(w.at(from), w.at(to))); err != nil {
			t.Fatal(err)
		}
	}

	fire := api.RunRequest{Job: job, File: api.Path(s.Drop)}
	var r api.Run
	if err := b.client.Post(t.Context(), "/v1/runs", fire, &r); err != nil {
		t.Fatal(err)
	}

	if s.Blocked != "" {
		b.checkBlocked(t, w, job, r.ID, s.Blocked)
		return
	}

	answers, shown := 0, ""
	d := b.end(t, r.ID, func(item api.Item) string {
		shown += item.Title + "\n" + item.Message + "\n" + item.Action + "\n"
		answers++
		switch {
		case item.Kind != "approval":
			return "Do as you think best."
		case s.Answer == "" || answers > 1:
			return "deny"
		}

		for _, name := range s.Swap.Remove {
			if err := os.RemoveAll(filepath.Join(w.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		w.write(t, s.Swap.Files, s.Swap.Links)
		return s.Answer
	})

	s.check(t, d, shown)
	if m := w.models[job]; s.Asked > 0 && len(m.Requests()) > s.Asked {
		t.Errorf("the model was asked %d times, more than %d", len(m.Requests()), s.Asked)
	}

	if s.Watch != "" {
		b.awaitProblem(t, job, s.Watch)
	}

	if s.True != "" {
		var out struct{ Rows []map[string]any }
		if err := b.client.Post(t.Context(), "/v1/agents/"+a.agentOf(s)+"/query", api.QueryRequest{SQL: "select (" + s.True + ") is true ok"}, &out); err != nil || len(out.Rows) != 1 || fmt.Sprint(out.Rows[0]["ok"]) != "1" {
			t.Errorf("%s does not hold: %v %v", s.True, out, err)
		}
	}

	var slots []api.AgentWake
	if err := b.client.Get(t.Context(), "/v1/slots", url.Values{"agent": {a.Name}}, &slots); err != nil || len(slots) != 1 || (slots[0].Wake != nil) != s.Wakes {
		t.Errorf("a wake is to be planned: %t, and there are %+v %v", s.Wakes, slots, err)
	}
}

// checkBlocked checks that a run stays queued and sends no request to a model, and that its owner
// is told why.
func (b *attackSuite) checkBlocked(t *testing.T, w *fixture, job, id, why string) {
	t.Helper()
	cmdtest.Until(t, "a word of what is in the way: "+why, func() bool {
		var jobs []api.Job
		if err := b.client.Get(t.Context(), "/v1/jobs", nil, &jobs); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(jobs, func(j api.Job) bool {
			return j.Name == job && j.Blocked && slices.ContainsFunc(j.Obstacles, func(o api.Obstacle) bool { return regexp.MustCompile(why).MatchString(o.Text) })
		})
	})

	var d api.RunDetail
	if err := b.client.Post(t.Context(), "/v1/runs/"+id+"/cancel", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Get(t.Context(), "/v1/runs/"+id, nil, &d); err != nil || d.Outcome != domain.OutcomeCancelled || len(d.Attempts) != 0 || len(w.models[job].Requests()) != 0 {
		t.Errorf("it has begun: %+v (%v)", d.Run, err)
	}
}

// awaitProblem waits until the owner is told about the problem with a job's folder.
func (b *attackSuite) awaitProblem(t *testing.T, job, wanted string) {
	t.Helper()
	cmdtest.Until(t, "a word of the folder: "+wanted, func() bool {
		var jobs []api.Job
		if err := b.client.Get(t.Context(), "/v1/jobs", nil, &jobs); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(jobs, func(j api.Job) bool {
			return j.Name == job && j.Watch != nil && regexp.MustCompile(wanted).MatchString(j.Watch.Problem)
		})
	})
}

// end waits for the end of a run and answers its questions as the owner.
func (b *attackSuite) end(t *testing.T, id string, answer func(api.Item) string) (d api.RunDetail) {
	t.Helper()
	answered := map[string]bool{}
	cmdtest.Until(t, "the end of the run", func() bool {
		d = api.RunDetail{}
		if err := b.client.Get(t.Context(), "/v1/runs/"+id, nil, &d); err != nil {
			t.Fatal(err)
		}
		if d.State != "waiting" {
			return d.State == "finished"
		}

		for _, item := range d.Inbox {
			if item.State != "open" || answered[item.ID] {
				continue
			}

			if err := b.client.Post(t.Context(), "/v1/inbox/"+item.ID+"/answer", api.Answer{Text: answer(item)}, nil); err != nil {
				t.Fatal(err)
			}
			answered[item.ID] = true
		}

		return false
	})
	return d
}

// check compares the record of a run with the attempted calls.
func (s Stage) check(t *testing.T, d api.RunDetail, shown string) {
	t.Helper()
	var kinds []string
	var told strings.Builder
	var made []api.Call
	for _, step := range d.StepsDetail {
		made = append(made, step.Calls...)
	}

	for _, c := range made {
		if !slices.Contains([]domain.CallState{domain.CallDone, domain.CallFailed, domain.CallDeduped}, c.State) || len(c.Envelope) == 0 {
			t.Errorf("the record of %s %s has no answer: %s", c.Tool, c.Args, c.State)
		}

		kind := c.Kind
		if c.OK {
			kind = "ok"
		}

		kinds = append(kinds, kind)
		fmt.Fprintf(&told, "%s\n", unescapedJSON(c.Envelope))
	}

	tries := flattenCalls(s.Calls)
	if !s.Again && s.Job["playbook"] == nil {
		if len(made) < len(tries) {
			t.Errorf("%d calls were tried and %d are on record", len(tries), len(made))
		}
		for i := range min(len(made), len(tries)) {
			if !sameCall(t, tries[i], made[i]) {
				t.Errorf("call %d on record is %s %s, and not %v", i+1, made[i].Tool, made[i].Args, tries[i])
			}
		}
	}

	if !s.Again {
		want := slices.Repeat([]string{"ok"}, len(tries))
		if s.Kinds != "" {
			want = strings.Fields(s.Kinds)
		}
		if got := strings.Join(kinds, " "); got != strings.Join(want, " ") {
			t.Errorf("the answers are %s, want %s\n%s%s", got, strings.Join(want, " "), told.String(), d.Error)
		}
	}

	for i, c := range tries {
		if _, script := c["bash"].(string); script && i < len(kinds) && kinds[i] == "ok" && !strings.Contains(told.String(), tried) && !slices.Contains(s.Says, "") {
			t.Errorf("the script did not come to its end: %s", told.String())
		}
	}

	for _, say := range s.Says {
		if !regexp.MustCompile(say).MatchString(told.String() + d.Error + d.Summary) {
			t.Errorf("nothing says %q:\n%s%s", say, told.String(), d.Error)
		}
	}

	for _, say := range s.Unsaid {
		if strings.Contains(told.String(), say+`\n`) || strings.Contains(told.String(), say+" ") {
			t.Errorf("somebody says %q:\n%s", say, told.String())
		}
	}

	if s.Shows != "" && !strings.Contains(shown, s.Shows) {
		t.Errorf("the owner is not shown %q but\n%s", s.Shows, shown)
	}
	if s.Ends != "" && d.Outcome != s.Ends {
		t.Errorf("the run ended as %s, want %s: %s", d.Outcome, s.Ends, d.Error)
	}
	if s.Labels != "" && strings.Join(d.Taint, "") != s.Labels {
		t.Errorf("the taint of the run is %v, want %s", d.Taint, s.Labels)
	}
}

// unescapedJSON decodes \u escapes in JSON.
func unescapedJSON(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}

	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)

	return b.String()
}

// sameCall reports whether a recorded call is the attempted one.
func sameCall(t *testing.T, try map[string]any, made api.Call) bool {
	t.Helper()
	for name, args := range maps.All(try) {
		want := scripted(t, "", name, args)
		return made.Tool == want.Name && unescapedJSON(made.Args) == unescapedJSON(want.Args)
	}
	return false
}

// processesIn returns the processes that work in a folder or have its name in their command line.
func processesIn(t *testing.T, dir string) (out []int) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}

		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // fails if the process has ended
		if strings.HasPrefix(cwd+"/", dir+"/") || strings.Contains(string(line), dir+"/") {
			out = append(out, pid)
		}
	}

	return out
}
