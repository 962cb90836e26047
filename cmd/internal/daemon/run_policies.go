package daemon

import (
	"time"

	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

// newPolicy is what the dispatcher needs to know of a job.
func newPolicy(cfg *config.Config, j *config.Job) dispatch.Policy {
	p := dispatch.Policy{
		Attempts: j.Retry.Attempts, Backoff: time.Duration(j.Retry.Backoff), MaxBackoff: time.Duration(j.Retry.MaxBackoff),
		On: j.Retry.On, Resume: config.On(j.Resume), StartDeadline: time.Duration(j.StartDeadline), OnMiss: j.OnMiss, CatchupWindow: time.Duration(j.CatchupWindow), PauseAfter: j.PauseAfter,
	}
	// The other overlap policies are decided when an occurrence comes due, on what is queued by then;
	// the dispatcher only has to let runs start side by side.
	if j.Overlap == domain.OverlapAllow {
		p.Concurrency = -1
	}

	if cfg.Shared() {
		p.Node = cfg.HostOf(j)
	}
	return p
}

// Policy is how the runs of a job are handled; an ad-hoc run is resumed and not retried.
func (p *Plan) Policy(job string) dispatch.Policy {
	if policy, ok := p.policies[job]; ok {
		return policy
	}
	return dispatch.Policy{Resume: true}
}
