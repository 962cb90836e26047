package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
)

const (
	stripLength = 90
	nextShown   = 10
	reasonsOf   = 20 // skipped instants listed with their reason
	week        = 7 * 24 * time.Hour
)

// job is the page of a job.
type job struct {
	page
	api.Job
	Next       []api.Occurrence
	Strip      []moment
	NotRun     []api.Explanation
	Notes      []string
	Durations  chart
	Costs      chart
	Definition api.Definition
	Simulated  []api.Occurrence
	// SimulatedUntil is the end of the simulation if it stopped before the end of the week.
	SimulatedUntil string
	Simulates      bool
	Asked          backfillForm  // requested backfill
	Backfill       *api.Backfill // result of the dry run; nil if no backfill was requested
}

// backfillForm holds a time span as entered in a form.
type backfillForm struct{ From, To string }

func (s *site) jobRoutes(mux *http.ServeMux) {
	mux.Handle("GET /jobs", s.show(s.jobs))
	mux.Handle("GET /jobs/{name}", s.show(s.job))
	mux.Handle("POST /jobs/{name}/run", s.do(s.runJob))
	mux.Handle("POST /jobs/{name}/backfill", s.do(s.backfill))
	s.pauseRoutes(mux, "/jobs/{name}", pause.Job)
}

func (s *site) jobs(r *http.Request, p page) (templ.Component, error) {
	all, err := s.control.Jobs(r.Context())
	if err != nil {
		return nil, err
	}

	armed := r.URL.Query().Get("armed") == "yes"
	if armed {
		all = slices.DeleteFunc(all, func(j api.Job) bool { return !j.Enabled || j.Paused })
	}
	return jobsPage(p.titled("Jobs", "Jobs"), all, armed), nil
}

func (s *site) job(r *http.Request, p page) (templ.Component, error) {
	ctx, name := r.Context(), r.PathValue("name")
	if err := s.control.Known(name, ""); err != nil {
		return nil, err
	}

	all, err := s.control.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	v := job{page: p.titled(name, "Jobs"), Simulates: r.URL.Query().Get("simulate") == "week"}
	v.Job = all[slices.IndexFunc(all, func(j api.Job) bool { return j.Name == name })]
	var errs [4]error
	var why api.Why
	var recent []api.Run
	v.Next, errs[0] = s.why.Next(ctx, name, nextShown)
	v.Definition, errs[1] = s.control.Definition(name)
	why, errs[2] = s.why.Why(ctx, name, "", stripLength)
	recent, errs[3] = s.answers.Runs.List(ctx, runs.Filter{Job: name, Limit: stripLength, Brief: true})
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	v.Notes = why.Notes
	v.strip(why.Lines)
	v.Durations, v.Costs = durations(p, recent), costs(recent)

	if v.Simulates {
		var until time.Time
		if v.Simulated, until, err = s.why.Simulate(ctx, name, week); err != nil {
			return nil, err
		}
		if until.Before(p.Now.Add(week - time.Minute)) {
			v.SimulatedUntil = p.exact(until)
		}
	}

	v.Asked = backfillForm{r.URL.Query().Get("from"), r.URL.Query().Get("to")}
	if v.Asked.From != "" {
		would, err := s.control.Backfill(ctx, name, api.BackfillRequest{From: v.Asked.From, To: v.Asked.To, DryRun: true})
		if err != nil {
			return nil, err
		}
		v.Backfill = &would
	}
	return jobPage(v), nil
}

// backfill starts the backfill that the page has previewed.
func (s *site) backfill(r *http.Request) (string, error) {
	job := r.PathValue("name")
	_, err := s.control.Backfill(r.Context(), job, api.BackfillRequest{From: r.PostFormValue("from"), To: r.PostFormValue("to")})
	return runsPath("job", job, "trigger", string(domain.TriggerBackfill)), err
}

// strip sets the row of marks for past instants and runs, and the list of instants that did not
// run.
func (v *job) strip(lines []api.Explanation) {
	for _, l := range lines {
		if l.Nominal.After(v.Now) {
			continue
		}

		m := moment{At: l.Nominal.Time, Title: v.exact(l.Nominal.Time)}
		if l.Run != "" {
			m.mark, m.Link = markOf(l.State, l.Outcome, l.WaitingFor), runLink(l.Run, l.Outcome)
			m.Title += " " + m.Word
		} else {
			word := string(l.Decision)
			if word == "" {
				word = "not decided"
			}
			m.mark, m.Link = mark{"–", "grey", word}, "#why"
			m.Title += " " + word + ": " + l.Reason
			v.NotRun = append(v.NotRun, l)
		}
		v.Strip = append(v.Strip, m)
	}

	if len(v.Strip) > stripLength {
		v.Strip = v.Strip[len(v.Strip)-stripLength:]
	}
	if len(v.NotRun) > reasonsOf {
		v.NotRun = v.NotRun[len(v.NotRun)-reasonsOf:]
	}
	slices.Reverse(v.NotRun)
}

// durations returns a chart of the durations of finished runs, oldest first.
func durations(p page, runs []api.Run) chart {
	c := chart{Name: "duration"}
	for _, r := range slices.Backward(runs) {
		if d := p.took(r); !r.FinishedAt.IsZero() && d > 0 {
			c.add(point{Value: d.Seconds(), Label: fmt.Sprintf("run %s: %s, %s", r.ID, span(d), runMark(r).Word), Link: runLink(r.ID, r.Outcome), Class: runMark(r).Class})
		}
	}
	c.say(func(v float64) string { return span(time.Duration(v * float64(time.Second))) })
	return c
}

// costs returns a chart of the costs of runs that cost anything.
func costs(runs []api.Run) chart {
	c := chart{Name: "cost"}
	for _, r := range slices.Backward(runs) {
		if r.CostUSD > 0 {
			c.add(point{Value: r.CostUSD, Label: fmt.Sprintf("run %s: %s", r.ID, money(r.CostUSD)), Link: runLink(r.ID, r.Outcome), Class: runMark(r).Class})
		}
	}
	c.say(money)
	return c
}

// runJob starts a run of a job with the entered inputs and file.
func (s *site) runJob(r *http.Request) (string, error) {
	ask := api.RunRequest{Job: r.PathValue("name"), File: api.Path(strings.TrimSpace(r.PostFormValue("file")))}
	for l := range strings.SplitSeq(r.PostFormValue("input"), "\n") {
		if strings.TrimSpace(l) == "" {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSpace(l), "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return "", badRequest("an input is NAME=VALUE, one in a line, and not %q", l)
		}
		if ask.Input == nil {
			ask.Input = map[string]string{}
		}
		ask.Input[name] = strings.TrimSpace(value)
	}

	started, err := s.answers.Runs.Fire(r.Context(), ask)
	return runPath(started.ID), err
}

// decisionMark returns the mark of a decision.
func decisionMark(d domain.Decision) mark {
	if d == domain.DecisionRun {
		return mark{"●", "accent", "runs"}
	}
	return mark{"–", "grey", string(d)}
}
