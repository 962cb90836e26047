package agent

import (
	"context"
	"maps"

	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/internal/ledger"
)

// RefusedPrograms returns, by job, the reasons for which the job's programs will be refused on this
// machine. It may start a program to probe the machine.
func RefusedPrograms(ctx context.Context, p plan.Plan) (map[string][]string, error) {
	r, err := forPlan(p, "")
	if err != nil {
		return nil, err
	}

	out := map[string][]string{}
	for job := range maps.Keys(p.Jobs) {
		t, err := r.Plan.Resolve(ledger.Run{Job: job})
		if err != nil {
			continue // the configuration check reports it
		}
		if flaws := programs.Flaws(r.programs.TooWeak(ctx, t), r.programs.RepositoryFlaw(ctx, t)); len(flaws) > 0 {
			out[job] = flaws
		}
	}
	return out, nil
}
