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

// maxNoticeAction is how much of an action a notice shows, in characters.
const maxNoticeAction = 1000

// noticeReadTimeout bounds how long a notice waits for what it tells beside its run.
const noticeReadTimeout = 10 * time.Second

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
		job, ok, name = p.ofWake(p.originJob(run, d)), true, run.Agent+" (alarm)"
	}

	outcome := string(res.Outcome)
	if res.Wait != nil {
		outcome = string(domain.StateWaiting)
	}
	if !ok || !job.Notify.wants(outcome) {
		return nil
	}

	data := templateData(run, run.Attempt, job.asBatch(d), run.FinishedAt, run.FinishedAt)
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
		shown := text.Truncate(q.Action.Shown, maxNoticeAction)
		if shown != q.Action.Shown {
			shown += " (the rest of it: rouse inbox)"
		}

		return fmt.Sprintf("%s\n%s\nrouse approve %s\nrouse deny %[3]s", q.Message, oneLine(shown), ledger.ItemHere)
	}

	body := q.Message
	if len(q.Options) > 0 {
		body += "\n– " + strings.Join(q.Options, "\n– ")
	}

	return body + "\nrouse inbox"
}

// handedOver lists what a run shared, for the end of its notice (OSA-19).
func (r *Runner) handedOver(run ledger.Run) string {
	ctx, cancel := context.WithTimeout(context.Background(), noticeReadTimeout)
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
			Title: fmt.Sprintf("%s is paused: %s was taken 20 times in a minute", name, oneLine(path)),
			Body:  fmt.Sprintf("Something writes that file again and again, perhaps the job itself. See rouse runs --job %s; when it is repaired: rouse resume %s", name, name),
		})
	}

	return out
}
