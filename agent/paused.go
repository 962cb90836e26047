package agent

import (
	"fmt"

	"rouse/agentdb/ledger"
)

// PauseNotices tell the owner that a job is paused because so many of its runs in a row
// have failed; they are sent whichever outcomes the job tells about.
func (r *Runner) PauseNotices(run ledger.Run, res ledger.Result, failures int) []ledger.Notice {
	job, ok := r.plan.Load().Jobs[run.Job]
	if !ok {
		return nil
	}

	var out []ledger.Notice
	for _, channel := range job.Notify.Channels {
		out = append(out, ledger.Notice{
			Run: run.ID, Job: run.Job, Agent: run.Agent, Channel: channel, Outcome: res.Outcome,
			Title: fmt.Sprintf("%s is paused: %d runs in a row failed", run.Job, failures),
			Body:  fmt.Sprintf("The last one: %s\nSee rouse show %d; when it is repaired: rouse resume %s", res.Error, run.ID, run.Job),
			Key:   fmt.Sprintf("paused:%d:%d:%s", run.ID, run.Attempt, channel),
		})
	}

	return out
}

// BrokenNotices tell the owner that a job is paused because one path started it again and
// again: in all likelihood it wakes itself, by a program that writes what it watches.
func (r *Runner) BrokenNotices(name, path string) []ledger.Notice {
	job, ok := r.plan.Load().Jobs[name]
	if !ok {
		return nil
	}

	var out []ledger.Notice
	for _, channel := range job.Notify.Channels {
		out = append(out, ledger.Notice{
			Job: name, Agent: job.Agent, Channel: channel,
			Title: fmt.Sprintf("%s is paused: %s was taken 20 times in a minute", name, plain(path)),
			Body:  fmt.Sprintf("Something writes that file again and again, perhaps the job itself. See rouse runs --job %s; when it is repaired: rouse resume %s", name, name),
		})
	}

	return out
}
