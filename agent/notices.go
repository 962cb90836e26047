package agent

import (
	"fmt"
	"strings"

	"rouse/agent/model/playbook"
	"rouse/agentdb/ledger"
)

// Notices composes what the owner is told when a run has finished: nothing, or a notice
// to each of the job's channels. A template that fails costs the wording, not the notice.
func (r *Runner) Notices(run ledger.Run, res ledger.Result) []ledger.Notice {
	p := r.plan.Load()
	job, ok := p.Jobs[run.Job]
	if !ok || !job.Notify.wants(res.Outcome) {
		return nil
	}
	d, err := parseDetail(run)
	if err != nil {
		d = ledger.Detail{} // the run's own error tells of it
	}
	data := templateData(run, run.Attempt, d, run.FinishedAt, run.FinishedAt)
	data["Outcome"], data["Summary"], data["Error"] = string(res.Outcome), res.Summary, res.Error
	title := r.wording(job.Notify.Title, data, fmt.Sprintf("%s: %s", run.Job, strings.ReplaceAll(string(res.Outcome), "_", " ")))
	body := r.wording(job.Notify.Body, data, told(run, res))
	var out []ledger.Notice
	for _, channel := range job.Notify.Channels {
		out = append(out, ledger.Notice{
			Run: run.ID, Job: run.Job, Agent: run.Agent, Channel: channel, Title: title, Body: body, Outcome: res.Outcome,
			Key: fmt.Sprintf("run:%d:%d:%s", run.ID, run.Attempt, channel),
		})
	}
	return out
}

func (r *Runner) wording(template string, data map[string]any, fallback string) string {
	if template == "" {
		return fallback
	}
	text, err := playbook.Expand("notify", template, data)
	if err != nil {
		r.log.Warn("a notice could not be worded as configured", "job", data["Job"], "error", err)
		return fallback
	}
	return text
}

// told is the built-in body of a notice.
func told(run ledger.Run, res ledger.Result) string {
	text := res.Error
	if text == "" {
		text = res.Summary
	}
	if text == "" {
		text = "no summary"
	}
	return fmt.Sprintf("%s\nrouse show %d", text, run.ID)
}
