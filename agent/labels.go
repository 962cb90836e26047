package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/nofollow"
)

// lookUp adds to what a call needs the labels of what it reads, as they are now, and names all that the
// agent keeps where the call may write any of it.
func (g *authorizer) lookUp(ctx context.Context, need *tool.Need) error {
	if need.WritesMemory { // its database, and where it may write
		need.Writes = append(append(need.Writes, g.roots.Writable()...), ledger.TablePlace(g.rules.Agent, ""))
	}

	letters, err := g.ledger.LabelsOf(ctx, need.Reads...)
	labels := tool.ParseTaint(letters)
	if labels&tool.Private != 0 && need.NotPrivate == "" {
		if need.NotPrivate = "rouse grants"; len(need.Reads) == 1 { // lists all places with labels
			name := need.Reads[0].Name
			if need.Reads[0].Kind != ledger.PlaceFile { // the name of a table begins with its agent
				name, _, _ = strings.Cut(name, "/")
			}
			need.NotPrivate = "rouse grants release " + name
		}
	}
	need.AddsTaint |= labels
	return err
}

// lookAgain adds to the run the labels that what its calls read has got since they were decided on: another run
// may have labelled a place, and written there, before the call came to read it. Labels are on record
// before what they are about, so that none is missed now.
func (g *authorizer) lookAgain(ctx context.Context) error {
	letters, err := g.ledger.LabelsOf(ctx, g.madeReads...)
	g.addedTaint |= tool.ParseTaint(letters)
	g.madeReads = nil
	return err
}

// programEnded labels where a program may have written that has served for a while: what it could read may have got labels since the
// last call that was decided on.
func (g *authorizer) programEnded(ctx context.Context) error {
	need := g.roots.ProgramNeed()
	if err := g.lookUp(ctx, &need); err != nil {
		return err
	}

	g.mu.Lock()
	g.addedTaint |= need.AddsTaint
	g.marks.Writes = append(g.marks.Writes, need.Writes...)
	g.mu.Unlock()
	return g.OnCallsStart(ctx)
}

// labelFile records a file that a run is about to give its name to, so that it keeps its labels under
// any other name.
func (g *authorizer) labelFile(ctx context.Context, file ledger.Place) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	missing, err := g.ledger.Unlabelled(ctx, g.taint.String(), []ledger.Place{file})
	if err != nil || len(missing) == 0 {
		return err
	}
	return g.ledger.RecordTaint(ctx, g.attempt, ledger.TaintUpdate{Writes: missing})
}

// admitPrompt records the labels of what a model is told from the start: the names of its agent's tables
// and what they are for, rows, what its working folder holds, and skills. All of that has been read by now, so
// that its labels are on record.
func (g *authorizer) admitPrompt(ctx context.Context, t *attempt) error {
	if !t.needsModel() && !t.executes() || t.wrapTool != nil {
		return nil
	}

	need := g.promptNeed(t)
	if err := g.lookUp(ctx, &need); err != nil {
		return err
	}

	g.mu.Lock()
	g.meet(need.AddsTaint&^g.taint, "its prompt, which shows files, tables, rows or reports of earlier runs", need.NotPrivate)
	g.addedTaint |= need.AddsTaint
	g.mu.Unlock()
	// The model is about to see it, so it is recorded even if the run is being stopped.
	return g.OnCallsStart(context.WithoutCancel(ctx))
}

// promptNeed is what a prompt shows of places that runs write.
func (g *authorizer) promptNeed(t *attempt) (need tool.Need) {
	s := t.found
	if t.project != "" {
		need = g.roots.ReadNeed(cmp.Or(t.agent.HostFolder, "."))
	}

	// That the database is private is said of its rows. What a run that had read some called its tables is labelled.
	if s.Tables != "" || s.Views != "" {
		need.Reads = append(need.Reads, ledger.TablePlace(t.agent.Name, ""))
	}
	if s.Views != "" && t.agent.PrivateDatabase {
		need.AddsTaint |= tool.Private
		need.NotPrivate = "private: {database: false}"
	}

	need.AddsTaint |= tool.ParseTaint(s.met) &^ tool.Outward // what they sent was theirs
	need.Reads = append(append(need.Reads, s.workspaces...), s.registered...)
	for _, sk := range t.agent.Skills.All() {
		shown := g.roots.ReadNeed(sk.Dir)
		// A skill is there to be followed: that it lies in a private folder makes it no private data.
		need.AddsTaint, need.Reads = need.AddsTaint|shown.AddsTaint&^tool.Private, append(need.Reads, shown.Reads...)
	}

	return need
}

// Kept are the places of all that an agent keeps. Of one that is not configured that is what has its name.
func (r *Runner) Kept(name string) ([]ledger.Place, error) {
	named := []ledger.Place{ledger.TablePlace(name, ""), ledger.WorkspacePlace(name, "", "")}
	p := r.plan.Load()
	a, ok := p.Agents[name]
	if !ok {
		return named, nil
	}

	places, err := a.kept(p.Boundary)
	return append(named, places...), err
}

// kept are the agent's database, and where it may write.
func (a Agent) kept(b nofollow.Boundary) ([]ledger.Place, error) {
	out := []ledger.Place{ledger.TablePlace(a.Name, "")}
	roots, err := tool.NewRootsWithin(b, a.Workdir, grants(newAttempt(&task{agent: a}, ledger.Attempt{})))
	if errors.Is(err, os.ErrNotExist) { // it has never run
		return append(out, ledger.Place{Kind: ledger.PlaceFile, Name: a.Workdir}), nil
	}
	if err != nil {
		return nil, err
	}

	// With the workdir, also where it is only read: others may write there.
	return append(append(out, ledger.Place{Kind: ledger.PlaceFile, Name: roots.Workdir()}), roots.Writable()...), nil
}
