package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/agent/model/playbook"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// maxToldAction is how much of an action a notice shows, in characters.
const maxToldAction = 1000

// lookTime bounds how long a notice waits for what it tells beside its run.
const lookTime = 10 * time.Second

// Notices composes what the owner is told when a run has finished: nothing, or a notice
// to each of the job's channels. A template that fails costs the wording, not the notice.
func (r *Runner) Notices(run ledger.Run, res ledger.Result) []ledger.Notice {
	d, err := parseDetail(run)
	if err != nil {
		d = ledger.Detail{} // the run's own error tells of it
	}

	p := r.plan.Load()
	job, ok := p.Jobs[run.Job]
	name := run.Job
	if run.Job == "" && run.Trigger == domain.TriggerSelf {
		job, ok, name = p.ofWake(p.begun(run, d)), true, run.Agent+" (alarm)"
	}

	outcome := string(res.Outcome)
	if res.Wait != nil {
		outcome = string(domain.StateWaiting)
	}
	if !ok || !job.Notify.wants(outcome) {
		return nil
	}

	data := templateData(run, run.Attempt, job.fitted(d), run.FinishedAt, run.FinishedAt)
	if job.Name != "" {
		data["Job"] = job.Name
	}

	data["Outcome"], data["Summary"], data["Error"] = outcome, res.Summary, res.Error
	title := r.wording(job.Notify.Title, data, fmt.Sprintf("%s: %s", name, strings.ReplaceAll(outcome, "_", " ")))
	body := r.wording(job.Notify.Body, data, told(run, res))
	if q := res.Wait; q != nil { // in its own words, whatever the job's templates are for
		title, body = fmt.Sprintf("%s asks", name), asks(*q)
	}

	body += r.handedOver(run)
	var out []ledger.Notice
	for _, channel := range job.Notify.Channels {
		out = append(out, ledger.Notice{
			Run: run.ID, Job: run.Job, Agent: run.Agent, Channel: channel, Title: title, Body: body, Outcome: res.Outcome,
			Key: fmt.Sprintf("run:%d:%d:%s", run.ID, run.Attempt, channel),
		})
	}

	return out
}

// asks words what a run waits for, with the command that answers it.
func asks(q ledger.Question) string {
	if q.Kind == ledger.KindApproval {
		shown := text.Truncate(q.Action.Shown, maxToldAction)
		if shown != q.Action.Shown {
			shown += " (the rest of it: rouse inbox)"
		}

		return fmt.Sprintf("%s\n%s\nrouse approve %s\nrouse deny %[3]s", q.Message, plain(shown), ledger.ItemHere)
	}

	body := q.Message
	if len(q.Options) > 0 {
		body += "\n– " + strings.Join(q.Options, "\n– ")
	}

	return body + "\nrouse inbox"
}

// handedOver lists what a run shared, for the end of its notice (OSA-19).
func (r *Runner) handedOver(run ledger.Run) string {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()

	shared, err := r.ledger.Artifacts(ctx, run.ID)
	if err != nil {
		r.log.Warn("what a run shared is missing in its notice", "run", run.ID, "error", err)
	}

	const most = 5
	var out strings.Builder
	for i, a := range shared {
		if i == most {
			fmt.Fprintf(&out, "\nand %d more shared files: rouse show %d", len(shared)-most, run.ID)
			break
		}

		fmt.Fprintf(&out, "\nshared %s (version %d)", a.Name, a.Version)
		if a.Description != "" {
			fmt.Fprintf(&out, ": %s", a.Description)
		}
	}

	return out.String()
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
