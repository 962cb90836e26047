package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// Pending implements web.Backend.
func (d *Daemon) Pending(ctx context.Context, run ledger.Run) (api.Pending, error) {
	now := d.ledger.Now()
	pauses, err := d.ledger.Pauses(ctx, now)
	if err != nil {
		return api.Pending{}, err
	}
	if run.State == domain.StateRunning {
		return api.Pending{Reason: d.waitsForModel(run.ID, now)}, nil
	}
	if p := d.pending(ctx, run, pauses, now, d.Current().Config.Zone()); p.Reason != "" || run.State != domain.StateQueued {
		return p, nil
	}

	// Nothing is against it but those that are on.
	on, err := d.ledger.Runs(ctx, ledger.RunFilter{State: domain.StateRunning, Limit: maxLogged + 1})
	if err != nil || len(on) == 0 {
		return api.Pending{}, err
	}

	var names []string
	for _, r := range on {
		names = append(names, fmt.Sprintf("run %d (%s, agent %s)", r.ID, jobText(r), r.Agent))
	}
	return api.Pending{Reason: "waits for its turn, because other runs are on: " + text.List(names, maxLogged)}, nil
}

// slowAnswer is the time after which a model that has not begun to respond is reported.
const slowAnswer = time.Second

// waitsForModel names the model that a run waits for, if the model cannot be reached or has not begun to respond.
func (d *Daemon) waitsForModel(run int64, now time.Time) string {
	for _, s := range d.live.States(run, "") {
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

// jobText names the job of a run, of which there may be none.
func jobText(r ledger.Run) string {
	if r.Job == "" {
		return "of no job"
	}
	return "job " + r.Job
}

// pending says what a run that is neither on nor finished waits for, as far as it can be told from itself;
// nothing where it is about to start, or does not wait.
func (d *Daemon) pending(ctx context.Context, r ledger.Run, pauses []ledger.Pause, now time.Time, zone *time.Location) api.Pending {
	if r.State == domain.StateWaiting && r.WaitingFor == domain.WaitRetry {
		// When it goes on comes first: what went wrong may be long, and be cut at its end.
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
	}

	if r.WaitingFor == domain.WaitPause {
		return api.Pending{Reason: "its skill has paused it, until you have it go on: rouse inbox"}
	}
	if r.WaitsForPerson() {
		what := map[domain.Wait]string{domain.WaitInput: "your answer", domain.WaitApproval: "your approval"}[r.WaitingFor]
		return api.Pending{Reason: fmt.Sprintf("waits for %s until %s: rouse inbox", what, api.LocalTime(r.NotBefore, zone))}
	}

	if r.State != domain.StateQueued {
		return api.Pending{}
	}
	if p, ok := ledger.Paused(pauses, r.Job, r.Agent, now); ok && r.Trigger != domain.TriggerManual {
		return api.Pending{Reason: "waits for the end of the pause: " + p.String()}
	}
	if why := ledger.ObstaclesText(d.runner.Obstacles(ctx, r)); why != "" {
		return api.Pending{Reason: "stays queued: " + why, Blocked: true}
	}
	// Obstacles of other kinds are asked for now; what is on record of them may be out of date while no daemon runs.
	if i := slices.IndexFunc(r.Blocked.By, func(o ledger.Obstacle) bool { return o.Kind == ledger.ObstacleOverlap }); i >= 0 && r.Blocked.Now() {
		return api.Pending{Reason: "stays queued: " + r.Blocked.By[i].Text, Blocked: true}
	}
	if why := d.absentNode(ctx, r, zone); why != "" {
		return api.Pending{Reason: why, Blocked: true}
	}
	if r.NotBefore.After(now) {
		return api.Pending{Reason: "starts " + api.LocalTime(r.NotBefore, zone)}
	}

	return api.Pending{}
}
