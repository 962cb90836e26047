package why

import (
	"context"
	"fmt"
	"slices"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
)

// maxListed is the maximum number of runs that a text lists.
const maxListed = 20

// Pending returns the reason why a run is waiting.
func (x *Explainer) Pending(ctx context.Context, run ledger.Run) (api.Pending, error) {
	now := x.Ledger.Now()
	pauses, err := x.Ledger.Pauses.List(ctx, now)
	if err != nil {
		return api.Pending{}, err
	}
	if run.State == domain.StateRunning {
		return api.Pending{Reason: x.waitsForModel(run.ID, now)}, nil
	}
	if p := x.pending(ctx, run, pauses, now, x.Setup().Config.Zone()); p.Reason != "" || run.State != domain.StateQueued {
		return p, nil
	}

	// Only running runs keep it from starting.
	on, err := x.Ledger.Runs.List(ctx, runs.Filter{State: domain.StateRunning, Limit: maxListed + 1})
	if err != nil || len(on) == 0 {
		return api.Pending{}, err
	}
	var names []string
	for _, r := range on {
		job := "of no job"
		if r.Job != "" {
			job = "job " + r.Job
		}
		names = append(names, fmt.Sprintf("run %d (%s, agent %s)", r.ID, job, r.Agent))
	}
	return api.Pending{Reason: "waits for its turn, because other runs are on: " + text.List(names, maxListed)}, nil
}

// slowAnswer is the time after which a model that has not begun to respond is reported.
const slowAnswer = time.Second

// waitsForModel returns a message if a run's model cannot be reached or has not begun to respond.
func (x *Explainer) waitsForModel(run int64, now time.Time) string {
	for _, s := range x.Live.States(run, "") {
		switch {
		case s.Model == "":
		case s.Retry != "":
			return fmt.Sprintf("waits for its model %s and retries: %s; start its server, or choose another model under models: (rouse doctor checks them)", s.Model, s.Retry)
		case now.Sub(s.Since) >= slowAnswer:
			return fmt.Sprintf("waits for its model %s to respond", s.Model)
		}
	}
	return ""
}

// pending returns the reason why a queued or waiting run is waiting. It does not consider other
// runs.
func (x *Explainer) pending(ctx context.Context, r ledger.Run, pauses []pause.Pause, now time.Time, zone *time.Location) api.Pending {
	switch {
	case r.State == domain.StateWaiting && r.WaitingFor == domain.WaitRetry:
		// The due time comes first, because a long error may be cut at its end.
		due := "now"
		if r.NotBefore.After(now) {
			due = api.LocalTime(r.NotBefore, zone)
		}
		reason := fmt.Sprintf("attempt %d failed; the next is due %s", r.Attempt, due)
		if r.Postponed() {
			reason = fmt.Sprintf("waits for its model, which was tried %s and is asked again %s", text.Plural(r.Postponements, "time"), due)
		}
		if r.Error != "" {
			reason += ": " + failureText(r.Error)
		}
		return api.Pending{Reason: reason}
	case r.WaitingFor == domain.WaitPause:
		return api.Pending{Reason: "its skill has paused it, until you have it go on: rouse inbox"}
	case r.WaitsForPerson():
		what := map[domain.Wait]string{domain.WaitInput: "your answer", domain.WaitApproval: "your approval"}[r.WaitingFor]
		return api.Pending{Reason: fmt.Sprintf("waits for %s until %s: rouse inbox", what, api.LocalTime(r.NotBefore, zone))}
	case r.State != domain.StateQueued:
		return api.Pending{}
	}

	if p, ok := pause.Paused(pauses, r.Job, r.Agent, now); ok && r.Trigger != domain.TriggerManual {
		return api.Pending{Reason: "waits for the end of the pause: " + p.String()}
	}
	if why := record.ObstaclesText(x.Runner.Blockers.Obstacles(ctx, r)); why != "" {
		return api.Pending{Reason: "stays queued: " + why, Blocked: true}
	}
	// Other obstacles are determined now, because recorded ones may be outdated if no daemon runs.
	if i := slices.IndexFunc(r.Blocked.By, func(o ledger.Obstacle) bool { return o.Kind == ledger.ObstacleOverlap }); i >= 0 && r.Blocked.Now() {
		return api.Pending{Reason: "stays queued: " + r.Blocked.By[i].Text, Blocked: true}
	}
	if why := x.absentNode(ctx, r, zone); why != "" {
		return api.Pending{Reason: why, Blocked: true}
	}
	if r.NotBefore.After(now) {
		return api.Pending{Reason: "starts " + api.LocalTime(r.NotBefore, zone)}
	}
	return api.Pending{}
}

// absentNode returns a message if a queued run waits for an unavailable node, and an empty string
// otherwise.
func (x *Explainer) absentNode(ctx context.Context, r ledger.Run, zone *time.Location) string {
	if x.Nodes == nil {
		return ""
	}
	e, err := x.Nodes(ctx)
	if err != nil {
		return "" // other output reports the error
	}

	name, because := "", ""
	switch host := x.Setup().Plan.NodeOf(r); {
	case host != "" && x.Setup().Plan.Policy(r.Job).Node != "":
		name, because = host, "which its job names"
	case host != "":
		name, because = host, "where the workdir of its agent is"
	case slices.Contains(e.Stay, r.Agent):
		name, because = e.Agents[r.Agent], "which alone has the files of its agent"
	}

	var last *api.Node
	for i, n := range e.Nodes {
		if n.Alive && n.Work && (name == "" || n.Name == name) {
			return ""
		}
		if n.Name == name {
			last = &e.Nodes[i]
		}
	}
	switch {
	case name == "":
		return "waits for a node that does runs; none is there"
	case last == nil:
		return fmt.Sprintf("waits for the node %s, %s; it was never there", name, because)
	case last.Alive:
		return fmt.Sprintf("waits for the node %s, %s; it does no runs (--work=false)", name, because)
	}
	return fmt.Sprintf("waits for the node %s, %s; it is not there since %s: %s", name, because, api.LocalTime(last.GoneAt.Time, zone), last.Why)
}
