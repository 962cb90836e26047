package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"rouse/agent/permit"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/why"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
)

// checkQueue reports the number of unfinished runs. It fails if a queued run cannot start.
func (d *Checker) checkQueue(ctx context.Context) api.Check {
	n, err := d.Ledger.Runs.Counts(ctx)
	queued, readErr := d.Ledger.Runs.List(ctx, runs.Filter{State: domain.StateQueued, Limit: 100})
	if err := errors.Join(err, readErr); err != nil {
		return undone("queue", err)
	}

	c := Passed("queue", fmt.Sprintf("%d queued, %d running, %d waiting", n.Queued, n.Running, n.Waiting))
	for _, r := range queued {
		if why := record.ObstaclesText(d.Runner.Blockers.Obstacles(ctx, r)); why != "" {
			return Failed(c.Name, fmt.Sprintf("%s; run %d of %s stays queued: %s", c.Detail, r.ID, r.Job, why), "see the reason; the runs start by themselves when it is gone")
		}
	}
	return c
}

// checkDefinitions reports jobs that do not start before the owner approves their definitions.
func (d *Checker) checkDefinitions(ctx context.Context) []api.Check {
	held, err := permit.UnapprovedJobs(ctx, d.Ledger, d.Runner.Plan.Load())
	if err != nil {
		return []api.Check{undone("definitions", err)}
	}
	if len(held) == 0 {
		return nil
	}

	jobs := slices.Sorted(maps.Keys(held))
	hows := slices.Compact(slices.Sorted(maps.Values(held)))
	return []api.Check{Failed("definitions", fmt.Sprintf("%s; runs of %s wait until you have approved their definitions", strings.Join(hows, "; "), strings.Join(jobs, ", ")),
		"see to it that only you can write there, or look at each and approve it: rouse inbox")}
}

func (d *Checker) checkWatches(ctx context.Context) api.Check {
	if d.Explainer.Watcher == nil {
		return Passed("watches", "no daemon runs, so no folder is watched")
	}

	var fine, bad []string
	used := 0
	for _, st := range d.Explainer.Watcher.Status(ctx) {
		used += st.Subscriptions
		w := why.NewWatch(st)
		said := fmt.Sprintf("%s: %s (%s, %s", st.Job, st.Path, st.Mode, w.Text())
		if !st.LastScan.IsZero() {
			said += ", scanned " + st.LastScan.In(d.zone()).Format("15:04:05 MST")
		}
		if why := why.WatchProblem(w); why != "" {
			bad = append(bad, said+"): "+why)
		} else {
			fine = append(fine, said+")")
		}
	}

	c := Passed("watches", cmp.Or(strings.Join(fine, "; "), "no folder is watched"))
	if len(bad) > 0 {
		c = Failed("watches", strings.Join(bad, "; "), "see the message; the folder is taken up as soon as it can be")
	}
	// Report the limit before it is reached. It applies to all programs of the user.
	if limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil {
		c.Detail += fmt.Sprintf(" (%d folders in all; the system allows %s to all programs of a user)", used, strings.TrimSpace(string(limit)))
	}
	return c
}

// checkFlaws reports problems of jobs and planned wakes that do not keep runs from starting.
func (d *Checker) checkFlaws(ctx context.Context, s *plan.Setup) []api.Check {
	last, err := d.Ledger.Runs.Last(ctx)
	wakes, readErr := d.Ledger.Wakes.List(ctx)
	if err := errors.Join(err, readErr); err != nil {
		return []api.Check{undone("work", err)}
	}

	var found []string
	jobs := map[string][]string{} // by flaw
	now := d.Ledger.Now()
	for i := range s.Config.Jobs {
		j := &s.Config.Jobs[i]
		_, ran := last[string(j.Name)]
		for _, flaw := range d.Explainer.Flaws(ctx, s, j, ran, now) {
			if jobs[flaw] == nil {
				found = append(found, flaw)
			}
			jobs[flaw] = append(jobs[flaw], string(j.Name))
		}
	}
	for i, flaw := range found {
		found[i] = fmt.Sprintf("job %s: %s", text.List(jobs[flaw], maxListed), flaw)
	}
	for _, w := range wakes {
		for _, flaw := range d.Explainer.ViewFlaws(ctx, w.Agent, w.ContextViews, "rouse wake "+w.Agent) {
			found = append(found, fmt.Sprintf("the planned wake of %s: %s", w.Agent, flaw))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []api.Check{Failed("work", shorten(found), "see each message; the runs start in any case")}
}

// checkJobs reports the obstacles that keep jobs from starting, each once with the jobs it affects.
func (d *Checker) checkJobs(ctx context.Context, s *plan.Setup) api.Check {
	var order []ledger.Obstacle
	jobs := map[string][]string{}
	for i, j := range s.Config.Jobs {
		for _, o := range d.Explainer.Obstacles(ctx, s, i) {
			if o.Kind == "agent" { // disabled on purpose
				continue
			}
			if jobs[o.Source] == nil {
				order = append(order, o)
			}
			if !slices.Contains(jobs[o.Source], string(j.Name)) {
				jobs[o.Source] = append(jobs[o.Source], string(j.Name))
			}
		}
	}
	if len(order) == 0 {
		return Passed("jobs", "nothing keeps any from working")
	}

	var said []string
	for _, o := range order {
		said = append(said, fmt.Sprintf("%s (blocks %s)", o, text.List(jobs[o.Source], maxListed)))
	}
	return Failed("jobs", shorten(said), "see each message; what waits runs by itself when it is mended")
}

// shorten joins at most maxListed sentences and the number of the others.
func shorten(said []string) string {
	if more := len(said) - maxListed; more > 0 {
		said = append(said[:maxListed:maxListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, "; ")
}

// checkOverdue reports the jobs that have not succeeded in time.
func (d *Checker) checkOverdue(ctx context.Context, s *plan.Setup) (out []api.Check) {
	now := d.Ledger.Now()
	for i := range s.Config.Jobs {
		name := string(s.Config.Jobs[i].Name)
		o, _, err := d.Explainer.Overdue(ctx, s, &s.Config.Jobs[i], now)
		if err != nil {
			out = append(out, undone("success of "+name, err))
		} else if o != nil {
			out = append(out, Failed("success of "+name, fmt.Sprintf("none within %s. %s", s.Config.Jobs[i].ExpectSuccessWithin, o.Why), "see rouse why "+name))
		}
	}
	return out
}

// checkCalendars reports the state of the calendars. It returns nil if there are no calendars.
func (d *Checker) checkCalendars() []api.Check {
	c := Passed("calendars", "")
	var details []string
	for _, one := range plan.Calendars(d.Setup().Config) {
		details = append(details, one.Text(time.Now()))
		c.OK = c.OK && one.Problem == ""
	}
	if len(details) == 0 {
		return nil
	}
	if c.Detail = strings.Join(details, "; "); !c.OK {
		c.Remedy = "see the message, and the address under calendars; it is tried again every ten minutes while a daemon runs"
	}
	return []api.Check{c}
}
