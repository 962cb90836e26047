package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agentdb/ledger"
	"rouse/internal/fspath"
	"rouse/internal/text"
)

// conditionView is what the command of a condition gets to see.
type conditionView struct {
	launcher *shell.Launcher
	withheld string // the workdir, if the command does not see it
	empty    string // the folder in which it works instead
}

func (v conditionView) close() {
	if v.empty != "" {
		_ = os.RemoveAll(v.empty)
	}
}

// conditionView confines a condition to the places of its agent and those that its owner named. A command with the network, or
// without a sandbox, could tell others what it reads, and could be led by it. So it sees no folder in which an agent or a stranger
// can write, unless its owner named that folder for it: by read, by write, or as a word of the command. Without a sandbox that is
// where it works, not a wall: it can still open any path that it knows.
func (q conditionChecker) conditionView(g Condition, named []string) (v conditionView, err error) {
	of := *q.task
	t := &of
	if g.Unconfined != "" {
		t.agent.Unconfined = g.Unconfined
	}

	if powerful := g.Network || t.agent.Unconfined != ""; powerful {
		t.files, t.manifest, t.received, t.detail.File, t.detail.Folder, t.agent.Skills = nil, "", "", nil, "", Skills{}
		t.agent.Read = slices.DeleteFunc(slices.Clone(t.agent.Read), t.writers.overlaps)
		if !g.Write {
			t.agent.Write = nil
		}
		if !g.Write && !slices.ContainsFunc(named, func(path string) bool { return q.within(t.agent.Workdir, path) }) {
			if v.empty, err = sandbox.MkdirTemp(q.programs.scratch, "condition"); err != nil {
				return v, fmt.Errorf("a condition needs a temporary folder: %w", err)
			}
			v.withheld = t.agent.Workdir
			t.baseDir = v.empty
		}
	}
	for _, path := range named {
		if q.within(path, t.agent.Workdir) { // the agent's own, as in the workdir
			t.agent.Public = append(slices.Clone(t.agent.Public), path)
		}
	}
	t.agent.Read = append(slices.Clone(t.agent.Read), named...)

	roots, err := q.roots(t)
	if err == nil {
		v.launcher, err = q.programs.conditionHost(t, roots)
	}
	if err != nil {
		v.close()
		return v, err
	}
	v.launcher.Starting = func(ctx context.Context, s shell.Start) error { return q.admit(ctx, g, t, roots, s) }
	return v, nil
}

// within reports whether a path is a folder, or lies in it, with the owner's links followed.
func (q conditionChecker) within(path, folder string) bool {
	return fspath.Within(q.resolved(path), q.resolved(folder))
}

func (q conditionChecker) resolved(path string) string {
	real, err := q.task.boundary.Resolve(path)
	if err != nil {
		return filepath.Clean(path)
	}
	return real
}

// admit decides whether the command of a condition may start, by the labels of what it is given. Nobody is there to be asked before
// each run: what would need an approval as a call does not start. What it writes is labelled, and its start recorded, before it starts.
func (q conditionChecker) admit(ctx context.Context, g Condition, t *attempt, roots *tool.Roots, s shell.Start) error {
	need := roots.ProgramNeed()
	held, from := need.AddsTaint, "strangers leave files in what it sees"
	for _, place := range need.Reads {
		letters, err := q.ledger.LabelsOf(ctx, place)
		if err != nil {
			return err
		}
		if labels := tool.ParseTaint(letters); labels != 0 {
			if held |= labels; labels&tool.Untrusted != 0 {
				from = "once you have checked it: rouse grants trust " + text.Visible(place.Name)
			}
		}
	}
	if t.agent.Unconfined != "" { // it reads whatever the daemon can
		held |= tool.Private
	}
	if outward := s.Network || t.agent.Unconfined != ""; outward && held&tool.Untrusted != 0 && held&tool.Private != 0 {
		return q.mixed(g, from, need.NotPrivate)
	}

	if g.Write {
		if s.Network {
			held |= tool.Untrusted
		}
		missing, err := q.ledger.Unlabelled(ctx, held.String(), need.Writes)
		if err == nil && len(missing) > 0 {
			err = q.ledger.RecordTaint(ctx, q.task.a, ledger.TaintUpdate{Taint: (held &^ tool.Outward).String(), Writes: missing})
		}
		if err != nil {
			return err
		}
	}
	return q.recordStart(ctx, q.task.run, "condition", s)
}

// mixed says why a condition does not start that would hold all three labels, and how to allow it.
func (q conditionChecker) mixed(g Condition, from, notPrivate string) error {
	way := "network: host"
	if !g.Network {
		way = "sandbox: off"
	}
	if notPrivate != "" {
		notPrivate = " (if it is not: " + notPrivate + ")"
	}
	return fmt.Errorf("it would get untrusted content (%s), private data%s and %s together, which needs an approval, and a condition cannot wait for one; change one of them, or show it no such folder",
		from, notPrivate, way)
}

// recordStart puts on record that a program starts which no call of a model asked for.
func (r *Runner) recordStart(ctx context.Context, run ledger.Run, why string, s shell.Start) error {
	network := "none"
	if s.Network {
		network = "host"
	}
	data, err := json.Marshal(map[string]any{"why": why, "program": filepath.Base(s.Argv[0]), "read": s.Read, "write": s.Write, "network": network, "tier": s.Tier})
	if err != nil {
		return err
	}
	return r.ledger.AppendEvents(ctx, ledger.Event{Run: run.ID, Job: run.Job, Kind: "program.started", Data: data})
}
