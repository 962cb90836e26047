package agent

import (
	"context"
	"fmt"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/text"
)

// tellQuota tells the owner when the agent's database has come to 80 % of its quota: on the
// job's channels, or the first, and once until it is below again (OSA-62). It is an extra: a
// run does not end otherwise for it.
func (r *Runner) tellQuota(ctx context.Context, run ledger.Run, t task, db *agentdb.DB) {
	channels := t.job.Notify.Channels
	if len(channels) == 0 {
		channels = t.channels[:min(len(t.channels), 1)]
	}

	err := db.TellQuota(ctx, func(used, limit int64) error {
		var notices []ledger.Notice
		for _, channel := range channels {
			notices = append(notices, ledger.Notice{
				Run: run.ID, Job: run.Job, Agent: t.agent.Name, Channel: channel,
				Key:   fmt.Sprintf("quota:%s:%d:%s", t.agent.Name, run.ID, channel),
				Title: fmt.Sprintf("%s: %d %% of its database's quota is used", t.agent.Name, used*100/limit),
				Body: fmt.Sprintf("%s are used of %s; beyond it nothing more is written\nWhat takes the space: rouse db %s\nMore space: database.quota of the agent, in the configuration",
					text.Size(used), text.Size(limit), t.agent.Name),
			})
		}

		return r.ledger.AppendNotices(ctx, notices...)
	})
	if err != nil {
		r.log.Warn("the owner could not be told of a quota", "agent", t.agent.Name, "run", run.ID, "error", err)
	}
}
