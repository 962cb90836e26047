package why

import (
	"context"
	"fmt"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
)

// Flaws returns problems of a job that do not keep its runs from starting: restrictions of the
// sandbox for its programs, missing saved views, and an at: time that passed without a run.
func (x *Explainer) Flaws(ctx context.Context, s *plan.Setup, j *config.Job, ran bool, now time.Time) (out []string) {
	if !config.On(j.Enabled) {
		return nil
	}
	if !ran && j.Expired(now) {
		out = append(out, fmt.Sprintf("at: %s is in the past, and nothing else starts the job; write a later time (%s), or start it: rouse run %s", j.RunAt, s.Config.Where(j.At), j.Name))
	}
	out = append(out, x.Runner.Blockers.ProgramFlaws(ctx, string(j.Name))...)
	return append(out, x.ViewFlaws(ctx, j.Agent, j.ContextViews, s.Config.Where(j.At))...)
}

// ViewFlaws returns descriptions of saved views that runs of an agent cannot show, with remedies.
func (x *Explainer) ViewFlaws(ctx context.Context, agent string, views []string, where string) (out []string) {
	for _, v := range views {
		if problem := x.Runner.Prompts().ViewProblem(ctx, agent, v); problem != "" {
			out = append(out, fmt.Sprintf("context_views: %s, so runs begin without those rows; correct the name (%s), or have the agent save the view; see rouse db %s views", problem, where, agent))
		}
	}
	return out
}

// Obstacles returns the obstacles of job i of the configuration. They keep its runs from starting
// or its webhook from working.
func (x *Explainer) Obstacles(ctx context.Context, s *plan.Setup, i int) []ledger.Obstacle {
	j := &s.Config.Jobs[i]
	if !config.On(j.Enabled) {
		return nil
	}
	return append(x.Runner.Blockers.Obstacles(ctx, ledger.Run{Job: string(j.Name)}), plan.SecretObstacles(s.Config, fmt.Sprintf("jobs[%d].webhook.", i))...)
}

// NewObstacles converts obstacles. The result is never nil.
func NewObstacles(all []ledger.Obstacle) []api.Obstacle {
	out := []api.Obstacle{}
	for _, o := range all {
		out = append(out, api.Obstacle{Kind: o.Kind, Source: o.Source, Text: o.Text, Where: o.Where})
	}
	return out
}
