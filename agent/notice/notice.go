// Package notice builds the texts of all notices, except those that agents send, and addresses them
// to the channels of a job.
package notice

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/plan/vars"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	ledgerbudget "rouse/internal/ledger/budget"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
)

// Writer builds notices from the current plan.
type Writer struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	plan   *plan.Current
}

// NewWriter returns a Writer.
func NewWriter(l *ledger.Ledger, log *slog.Logger, p *plan.Current) *Writer {
	return &Writer{l, log, p}
}

const maxAction = 1000

// readTimeout limits how long a notice waits for data from the ledger.
const readTimeout = 10 * time.Second

const maxArtifacts = 5

const maxObstacleTitle = 100

// address returns one notice for each channel. If n has a key, each notice gets a key of its own.
func address(n ledger.Notice, channels []string) []ledger.Notice {
	var out []ledger.Notice
	for _, channel := range channels {
		one := n
		one.Channel = channel
		if n.Key != "" {
			one.Key = n.Key + ":" + channel
		}
		out = append(out, one)
	}
	return out
}

// QuestionNotices returns the notices that a run asks a question, one for each channel of the job.
func (w *Writer) QuestionNotices(run ledger.Run, res ledger.Result) []ledger.Notice {
	t, _ := w.plan.Resolve(run)
	return w.notices(t, res)
}

// notices returns the notices that a run has finished or asks a question. If a template fails, the
// default text is used.
func (w *Writer) notices(t *plan.Task, res ledger.Result) []ledger.Notice {
	outcome := string(res.Outcome)
	if res.Wait != nil {
		outcome = string(domain.StateWaiting)
	}
	if !t.Notify.Wants(outcome) {
		return nil
	}

	name := nameOf(t.Run)
	data := vars.Of(t.Run, t.Run.Attempt, t.Detail, t.Run.FinishedAt, t.Run.FinishedAt)
	if job := t.GoverningJob().Name; job != "" {
		data["Job"] = job
	}

	data["Outcome"], data["Summary"], data["Error"] = outcome, res.Summary, res.Error
	w.addDelivery(data, t.Run, t.Detail)
	title := w.expandNotice(t.Notify.Title, data, fmt.Sprintf("%s: %s", name, strings.ReplaceAll(outcome, "_", " ")))
	body := w.expandNotice(t.Notify.Body, data, fmt.Sprintf("%s\nrouse show %d", cmp.Or(res.Error, res.Summary, "no summary"), t.Run.ID))
	if q := res.Wait; q != nil { // a question has its own text, because the job's templates are for results
		title, body = fmt.Sprintf("%s asks", name), questionBody(*q)
	}

	return address(ledger.Notice{
		Run: t.Run.ID, Job: t.Run.Job, Agent: t.Run.Agent, Outcome: res.Outcome, Key: fmt.Sprintf("run:%d:%d", t.Run.ID, t.Run.Attempt),
		Title: title, Body: body + w.sharedFiles(t.Run),
	}, t.Notify.Channels)
}

func nameOf(run ledger.Run) string {
	if run.Job == "" {
		return run.Agent + " (wake)" // of the runs without a job, only wakes send notices
	}
	return run.Job
}

// addDelivery adds the body of a webhook request to data. If the body cannot be read, the notice
// omits it.
func (w *Writer) addDelivery(data map[string]any, run ledger.Run, d ledger.TriggerDetail) {
	if d.Webhook == nil {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), readTimeout) // as in sharedFiles
	defer cancel()
	body, err := w.ledger.Runs.DeliveryBody(ctx, run.ID)
	if err != nil {
		w.log.Warn("what a webhook brought could not be read for a notice", "run", run.ID, "error", err)
		return
	}
	vars.AddBody(data, body)
}

func (w *Writer) expandNotice(template string, data map[string]any, fallback string) string {
	if template == "" {
		return fallback
	}

	text, err := playbook.Expand("notify", template, data)
	if err != nil {
		w.log.Warn("a notice could not be worded as configured", "job", data["Job"], "error", err)
		return fallback
	}
	return text
}

func questionBody(q inbox.Question) string {
	if q.Kind == inbox.KindApproval {
		shown := text.Truncate(q.Action.Description, maxAction)
		if shown != q.Action.Description {
			shown += " (the rest of it: rouse inbox)"
		}

		return fmt.Sprintf("%s\n%s\nrouse approve %s\nrouse deny %[3]s", q.Message, text.Collapse(text.OneLine(shown)), inbox.ItemPlaceholder)
	}

	body := q.Message
	if len(q.Options) > 0 {
		body += "\n– " + strings.Join(q.Options, "\n– ")
	}

	return body + "\nrouse inbox"
}

// sharedFiles returns the list of the run's artifacts, for the end of a notice.
func (w *Writer) sharedFiles(run ledger.Run) string {
	// The dispatcher passes no context, and a hanging ledger must not block it.
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()

	shared, err := w.ledger.Artifacts.List(ctx, run.ID)
	if err != nil {
		w.log.Warn("what a run shared is missing in its notice", "run", run.ID, "error", err)
	}

	var out strings.Builder
	for i, a := range shared {
		if i == maxArtifacts {
			fmt.Fprintf(&out, "\nand %d more shared files: rouse show %d", len(shared)-i, run.ID)
			break
		}

		fmt.Fprintf(&out, "\nshared %s (version %d)", a.Name, a.Version)
		if a.Description != "" {
			fmt.Fprintf(&out, ": %s", a.Description)
		}
	}

	return out.String()
}

// PauseNotices returns the notices that a job is paused after failures. They do not depend on
// notify.on.
func (w *Writer) PauseNotices(run ledger.Run, res ledger.Result, failures int) []ledger.Notice {
	t, _ := w.plan.Resolve(run) // without its job there are no channels
	return address(ledger.Notice{
		Run: run.ID, Job: run.Job, Agent: run.Agent, Outcome: res.Outcome, Key: fmt.Sprintf("paused:%d:%d", run.ID, run.Attempt),
		Title: fmt.Sprintf("%s is paused: %d runs in a row failed", run.Job, failures),
		Body:  fmt.Sprintf("The last one: %s\nSee rouse show %d; when it is repaired: rouse resume %s", res.Error, run.ID, run.Job),
	}, t.Notify.Channels)
}

// ObstacleNotices returns the notices that an obstacle keeps a run from starting. They are sent if
// notify.on contains "waiting".
func (w *Writer) ObstacleNotices(run ledger.Run, o ledger.Obstacle) []ledger.Notice {
	t, _ := w.plan.Resolve(run)
	if !t.Notify.Wants(string(domain.StateWaiting)) {
		return nil
	}

	waiting := "run " + fmt.Sprint(run.ID)
	if run.Job != "" {
		waiting = run.Job
	}
	return address(ledger.Notice{
		Run: run.ID, Job: run.Job, Agent: run.Agent,
		Title: fmt.Sprintf("%s is blocked: %s", waiting, text.Truncate(text.OneLine(o.Text), maxObstacleTitle)),
		Body:  fmt.Sprintf("%s\nNo run was started and nothing is lost. The run starts by itself when this is fixed, like all others that wait for the same.\nrouse jobs; rouse doctor; to drop this run: rouse stop %d", o, run.ID),
	}, t.Notify.Channels)
}

// jobNotices addresses a notice about a job to the channels of the job. It returns nil if the job
// is no longer configured.
func (w *Writer) jobNotices(name string, n ledger.Notice) []ledger.Notice {
	p := w.plan.Load()
	job, ok := p.Jobs[name]
	if !ok {
		return nil
	}
	n.Job, n.Agent = name, job.Agent
	return address(n, p.ChannelsOr(job.Notify.Channels, p.Agents[job.Agent].Channels))
}

// OverdueNotices returns the notices that a job has not succeeded in time. They do not depend on
// notify.on.
func (w *Writer) OverdueNotices(name string, within time.Duration, due time.Time, why string) []ledger.Notice {
	return w.jobNotices(name, ledger.Notice{
		Key:   fmt.Sprintf("overdue:%s:%d", name, due.UnixMilli()),
		Title: fmt.Sprintf("%s: no success within %s", name, text.Span(within)),
		Body:  fmt.Sprintf("%s\nOne was due by %s (expect_success_within)\nrouse why %s", why, timeText(due, w.plan.Load().Zone), name),
	})
}

// LoopNotices returns the notices that a job is paused because one path kept triggering it. In the
// title, pause.PathPlaceholder stands for the path.
func (w *Writer) LoopNotices(name string) []ledger.Notice {
	return w.jobNotices(name, ledger.Notice{
		Title: fmt.Sprintf("%s is paused: %s was taken 20 times in a minute", name, pause.PathPlaceholder),
		Body:  fmt.Sprintf("Something writes that file again and again, perhaps the job itself. See rouse runs --job %s; when it is repaired: rouse resume %s", name, name),
	})
}

// ReturnNotices returns the notices that a file has reappeared unchanged after its run failed.
func (w *Writer) ReturnNotices(name, path string, run int64) []ledger.Notice {
	return w.jobNotices(name, ledger.Notice{
		Run:   run,
		Title: fmt.Sprintf("%s: %s is back as it was when it failed", name, text.Collapse(text.OneLine(filepath.Base(path)))),
		Body: fmt.Sprintf("It waits where it is, and so does each file that is put back like this: something may sync the folder. Nothing more is told of them; rouse why %s lists them\nrouse retry %d tries it again, and so does a change of the job",
			name, run),
	})
}

// DatabaseQuota returns the notices that an agent's database is close to its quota.
func DatabaseQuota(t *plan.Task, used, limit int64) []ledger.Notice {
	return address(ledger.Notice{
		Run: t.Run.ID, Job: t.Run.Job, Agent: t.Agent.Name, Key: fmt.Sprintf("quota:%s:%d", t.Agent.Name, t.Run.ID),
		Title: fmt.Sprintf("%s: %d %% of its database's quota is used", t.Agent.Name, used*100/limit),
		Body: fmt.Sprintf("%s are used of %s; beyond it nothing more is written\nWhat takes the space: rouse db %s\nMore space: database.quota of the agent, in the configuration",
			text.Size(used), text.Size(limit), t.Agent.Name),
	}, t.OwnerChannels())
}

// WarnAt is the percentage of a budget at which the owner is notified.
const WarnAt = 80

// BudgetUsed returns the notices that most of a daily or monthly budget is used.
func BudgetUsed(t *plan.Task, job string, s ledgerbudget.Spending, key, used string) []ledger.Notice {
	end, layout := ledgerbudget.DayOf(time.Now(), t.Plan.Zone).Ends, "15:04 MST"
	if s.Monthly() {
		end, layout = ledgerbudget.MonthOf(time.Now(), t.Plan.Zone).Ends, timeLayout
	}
	return address(ledger.Notice{
		Run: t.Run.ID, Job: job, Agent: t.Agent.Name, Key: key,
		Title: fmt.Sprintf("%s: %d %% of the %s's budget is used", budgetOwner(s), WarnAt, periodText(s)),
		Body:  fmt.Sprintf("%s are used; the %s ends at %s\nrouse budget", used, periodText(s), end.In(t.Plan.Zone).Format(layout)),
	}, budgetChannels(t, s))
}

// budgetChannels returns the channels for notices about a budget. Only the budget of a job uses the
// job's channels.
func budgetChannels(t *plan.Task, s ledgerbudget.Spending) []string {
	if s.Scope == ledgerbudget.ScopeJob {
		return t.OwnerChannels()
	}
	return t.DefaultChannels
}

// BudgetFull returns the notices that a budget is exhausted.
func BudgetFull(t *plan.Task, job string, f ledgerbudget.Exceeded, key, reason string) []ledger.Notice {
	body := reason
	if f.EstimatedMicroUSD > 0 {
		body += "\nIf a program does not report its cost, set its price: executor: {price: {input: …, output: …}} in USD per million tokens, or {input: 0, output: 0} if a run costs nothing"
	}
	body += "\nRuns that cost nothing continue. Others start again after you raise the budget or when the " + periodText(f.Spending) + " ends\nrouse budget"
	return address(ledger.Notice{
		Run: t.Run.ID, Job: job, Agent: t.Agent.Name, Key: key,
		Title: fmt.Sprintf("%s: the %s's budget is used up", budgetOwner(f.Spending), periodText(f.Spending)),
		Body:  body,
	}, budgetChannels(t, f.Spending))
}

// Unreachable returns the notices that a run waits for its model. There is one for each outage.
// until is zero if the end is unknown.
func Unreachable(t *plan.Task, m *plan.Model, since time.Time, why string, until time.Time) []ledger.Notice {
	again := "after 5, 15 and 30 minutes and then every hour"
	if !until.IsZero() {
		again = "at " + timeText(until, t.Plan.Zone)
	}
	return address(ledger.Notice{
		Run: t.Run.ID, Job: t.Run.Job, Agent: t.Run.Agent, Key: fmt.Sprintf("model:%s:down:%d", m.Name, since.UnixMilli()),
		Title: fmt.Sprintf("the model %s does not answer: %s waits", m.Name, t.Asker()),
		Body:  fmt.Sprintf("%s\nIt is asked again %s, by each run that waits, as long as its job allows\nrouse show %d", why, again, t.Run.ID),
	}, t.OwnerChannels())
}

// QuotaSpent returns the notices that a model is paused. They include the amount that rouse spent.
func QuotaSpent(ctx context.Context, l *ledger.Ledger, t *plan.Task, p pause.ModelPause) []ledger.Notice {
	now := p.Since.In(t.Plan.Zone)
	spent := func(since time.Time) string {
		tokens, cost, err := l.Budget.SpentSince(ctx, since.Format(time.DateOnly))
		if err != nil {
			return "not known (" + err.Error() + ")"
		}
		return fmt.Sprintf("%s (%d tokens)", model.USD(cost), tokens)
	}

	return address(ledger.Notice{
		Run: t.Run.ID, Job: t.Run.Job, Agent: t.Run.Agent, Key: fmt.Sprintf("model:%s:quota:%d", p.Model, p.Since.UnixMilli()),
		Title: fmt.Sprintf("the model %s is paused: its provider's quota is spent", p.Model),
		Body: fmt.Sprintf("%s\nIt is not asked until %s; jobs that need it wait, those with a fallback go on with that\nAll models together took %s today and %s since the first of the month\nOnce it is paid, a run that you start or retry asks it at once, and when it answers the others go on: rouse run JOB, or rouse retry RUN",
			p.Reason, timeText(p.Until, t.Plan.Zone), spent(now), spent(now.AddDate(0, 0, 1-now.Day()))),
	}, t.OwnerChannels())
}

// EndNotices returns the notices about the end of a run, or nil if the caller waits for the run. A
// channel gets only some failures of an incident, and the recovery.
func (w *Writer) EndNotices(run ledger.Run, res ledger.Result) *incident.EndNotices {
	// If the task cannot be resolved, the run ends with that error, which the notice contains.
	p := w.plan.Load()
	t, _ := w.plan.Resolve(run)
	if run.Job == "" && len(t.Notify.Channels) == 0 {
		return nil
	}

	out := &incident.EndNotices{Zone: t.Plan.Zone}
	for _, n := range w.notices(t, res) {
		every := p.GroupOf(n.Channel).Every
		if t.Job.Seldom {
			every = 1
		}
		out.Notices = append(out.Notices, incident.EndNotice{Notice: n, Every: every})
	}

	var channels []string
	for _, channel := range t.Notify.Channels {
		if p.GroupOf(channel).Recovery {
			channels = append(channels, channel)
		}
	}
	out.Recovery = address(ledger.Notice{
		Run: run.ID, Job: run.Job, Agent: run.Agent, Outcome: res.Outcome, Key: fmt.Sprintf("recovered:%d:%d", run.ID, run.Attempt),
		Title: nameOf(run) + " has recovered",
		Body:  fmt.Sprintf("\nrouse show %d", run.ID),
	}, channels)
	return out
}

const timeLayout = "2006-01-02 15:04 MST"

func timeText(at time.Time, zone *time.Location) string {
	return at.In(zone).Format(timeLayout)
}

func budgetOwner(s ledgerbudget.Spending) string {
	if s.Scope == ledgerbudget.ScopeDaemon {
		return "rouse"
	}
	return s.Scope + " " + s.Name
}

// DescribeFull describes an exhausted budget. If estimates have filled the budget, their cause
// comes first.
func DescribeFull(f ledgerbudget.Exceeded, until ledgerbudget.Day, tokens, cost int64) string {
	whose, key := budgetOwner(f.Spending), "budget"
	if f.Scope == ledgerbudget.ScopeDaemon {
		whose, key = "the daemon", "limits"
	}

	limitUSD, limit := f.Spending.Limit(f.Limit)
	amount, name, period := func(n int64) string { return fmt.Sprint(n) }, "tokens", periodText(f.Spending)
	spent, estimated, reserved, wanted := f.Tokens, f.EstimatedTokens, f.ReservedTokens, tokens
	if f.Money {
		amount, name, limit = model.USD, "cost_usd", limitUSD
		spent, estimated, reserved, wanted = f.CostMicroUSD, f.EstimatedMicroUSD, f.ReservedMicroUSD, cost
	}

	said := fmt.Sprintf("the %s's budget of %s (%s.%s_per_%s: %s) has no room for a turn of up to %s: %s are spent", period, whose, key, name, period, amount(limit), amount(wanted), amount(spent))
	if reserved > 0 {
		said += fmt.Sprintf(" and %s reserved", amount(reserved))
	}

	said += fmt.Sprintf("; the %s ends at %s", period, until.Ends.Format(time.RFC3339))
	why := fmt.Sprintf("%s of what is spent are estimated, for requests of which no server said what they took", amount(estimated))
	switch {
	case estimated == 0:
		return said
	case spent-estimated+reserved+wanted <= limit:
		return fmt.Sprintf("%s; %s; without them there would be room: %s", f.EstimatedWhy, why, said)
	}
	return fmt.Sprintf("%s; %s, the last in %s", said, why, f.EstimatedWhy)
}

func periodText(s ledgerbudget.Spending) string {
	if s.Monthly() {
		return "month"
	}
	return "day"
}
