package daemon

import (
	"time"

	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

func newPolicy(j *config.Job) dispatch.Policy {
	p := dispatch.Policy{
		Attempts: j.Retry.Attempts, Backoff: time.Duration(j.Retry.Backoff), MaxBackoff: time.Duration(j.Retry.MaxBackoff),
		On: j.Retry.On, Resume: config.On(j.Resume), StartDeadline: time.Duration(j.StartDeadline), PauseAfter: j.PauseAfter,
	}
	if j.Overlap == domain.OverlapAllow {
		p.Concurrency = -1
	}

	return p
}

// Policy is what a job wants of its runs; an ad-hoc run is resumed and not retried.
func (p *Plan) Policy(job string) dispatch.Policy {
	if policy, ok := p.policies[job]; ok {
		return policy
	}
	return dispatch.Policy{Resume: true}
}
