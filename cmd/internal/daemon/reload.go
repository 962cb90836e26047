package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	agentplan "rouse/agent/plan"
	"rouse/agent/redact"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

const (
	lookEvery   = 2 * time.Second        // between looks at the names, sizes and times of the files
	checkEvery  = 30 * time.Second       // between comparisons of their content, whatever they look like
	debounceFor = 300 * time.Millisecond // how long the content has to be unchanged
	maxReads    = 10                     // attempts at files that change while they are read
	maxRefuse   = time.Minute            // longest pause after a part refused a configuration
	maxLogged   = 20                     // problems logged for one reading
	maxNotified = 5                      // problems in a notice
)

// reloader replaces the configuration, unless it has a problem. One goroutine reads and applies.
type reloader struct {
	d         *Daemon
	flagHome  string
	started   *config.Config
	log       *logging.Var // nil if its settings cannot be changed
	follows   bool         // false if the configuration came through a pipe, once
	calls     chan func(context.Context)
	requested chan struct{} // capacity 1: requests a reload without waiting for it
	calendars chan struct{} // capacity 1: a calendar has changed
	stopped   chan struct{}

	// Used by the loop alone, so without a lock.
	sources   *config.Sources // of the last reading
	attempted string          // their digest
	look      config.Look     // their last look
	checkAt   time.Time       // of the next comparison of their content
	refused   int             // how often in a row a part has refused
	reported  map[string]int  // problems by text: 1 they were logged, 2 the owner was notified
	zone      *time.Location  // the machine's zone at the last check
	latest    *api.Reloaded   // the last reading that changed anything

	mu       sync.Mutex
	problems []api.Problem      // of the configuration on disk; empty when it is in force
	wanted   []config.SecretRef // the secrets it refers to
}

func newReloader(d *Daemon, o Options) *reloader {
	r := &reloader{
		d: d, flagHome: o.FlagHome, started: o.Config, log: o.LogVar, calls: make(chan func(context.Context)), requested: make(chan struct{}, 1), calendars: make(chan struct{}, 1),
		stopped: make(chan struct{}), sources: &o.Config.Sources, reported: map[string]int{},
	}
	r.attempted = r.sources.Digest()
	r.follows = !notRegular(o.Config.Files[0])
	return r
}

// run reads the files when they have changed or a reload was requested, until ctx ends.
func (r *reloader) run(ctx context.Context) {
	timer := time.NewTimer(0) // the files may have changed since they were read at the start
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			r.poll(ctx)
			r.followZone(ctx)
			timer.Reset(lookEvery)
		case <-r.requested:
			r.d.supervision.reload(ctx, func() { r.reload(ctx) })
		case <-r.calendars:
			r.recalculate(ctx)
		case call := <-r.calls:
			r.d.supervision.reload(ctx, func() { call(ctx) })
		}
	}
}

// poll reads changed files. If there are problems, it also reads unchanged files every checkEvery.
func (r *reloader) poll(ctx context.Context) {
	if !r.follows {
		return
	}
	look, now := r.sources.Look(), time.Now()
	due := !now.Before(r.checkAt)
	if !due && look.Equal(r.look) {
		return
	}

	r.look = look
	if due {
		r.checkAt = now.Add(checkEvery)
	}
	if r.changed(ctx) || due && len(r.problemsOnDisk()) > 0 {
		r.reload(ctx)
	}
}

// Reload reads the configuration and applies it.
func (d *Daemon) Reload(ctx context.Context) (api.Reload, error) {
	stopped := &api.Error{Status: 409, Message: "no daemon serves this home; the configuration is read when one starts"}
	if d.reloads == nil {
		return api.Reload{}, stopped
	}

	var out api.Reload
	if !d.reloads.do(ctx, func(ctx context.Context) { out = d.reloads.reload(ctx) }) {
		return api.Reload{}, cmp.Or(ctx.Err(), error(stopped))
	}
	return out, nil
}

// do has the loop call a function. It returns false if the loop or ctx ends before the function has returned.
func (r *reloader) do(ctx context.Context, call func(context.Context)) bool {
	done := make(chan struct{})
	select {
	case r.calls <- func(ctx context.Context) { defer close(done); call(ctx) }:
	case <-r.stopped:
		return false
	case <-ctx.Done():
		return false
	}

	select {
	case <-done:
		return true
	case <-r.stopped:
	case <-ctx.Done():
	}
	return false
}

// ConfigProblem returns why the configuration on disk is not in use, or "". If load is true, it loads a newer configuration
// first.
func (d *Daemon) ConfigProblem(ctx context.Context, load bool) string {
	r := d.reloads
	if r == nil {
		return ""
	}
	if load || len(r.problemsOnDisk()) > 0 { // the mistake may be corrected by now
		r.do(ctx, r.checkNow)
	}

	found := r.problemsOnDisk()
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("the configuration on disk has a mistake, so the one loaded at %s is used: %s", api.LocalTime(d.Current().At, d.Zone()), text.OneLine(config.Problem(found[0]).String()))
}

// checkNow checks the time zone of the machine, and reads the files if they differ from the last reading.
func (r *reloader) checkNow(ctx context.Context) {
	r.followZone(ctx)
	if r.follows && r.changed(ctx) {
		r.reload(ctx)
	}
}

// changed reports whether the files differ from the last reading. It waits until they are unchanged.
func (r *reloader) changed(ctx context.Context) bool {
	seen := r.sources.Now().Digest()
	for range maxReads {
		if seen == r.attempted {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(debounceFor):
		}
		now := r.sources.Now().Digest()
		if now == seen {
			return true
		}
		seen = now
	}
	r.look = config.Look{} // the next poll tries again
	return false
}

// requestReload has the configuration read again without waiting for the result.
func (r *reloader) requestReload() { wakeUp(r.requested) }

// recalculateSoon has the schedules worked out again after calendars have changed.
func (r *reloader) recalculateSoon() { wakeUp(r.calendars) }

// wakeUp sends to a channel of capacity 1, unless a signal is pending.
func wakeUp(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// recalculate works out again what is due, by the same configuration. Here, where no other one can come into force meanwhile.
func (r *reloader) recalculate(ctx context.Context) {
	if err := r.d.Nodes.SetSchedules(ctx, r.d.Current().Plan); err != nil && ctx.Err() == nil {
		r.d.log.Warn("what has changed in calendars could not be put into force; it is tried again", "error", err)
		time.AfterFunc(time.Second, r.recalculateSoon)
	}
}

// problemsOnDisk says why the configuration on disk is not in force.
func (r *reloader) problemsOnDisk() []api.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems
}

// wantedSecrets are the secrets that the configuration on disk refers to while it is not in force.
func (r *reloader) wantedSecrets() []config.SecretRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

// reload reads the files and puts them into force, all of it or nothing.
func (r *reloader) reload(ctx context.Context) api.Reload {
	if !r.follows {
		return refusal([]api.Problem{{File: r.started.Files[0], Message: "is not a plain file: it was read when the daemon started, and cannot be read again"}})
	}

	started, old := time.Now(), r.d.Current()
	next, err := r.read(ctx)
	refused := r.refused + 1
	r.refused = 0 // only refusals in a row count
	if err == nil {
		if err = r.apply(ctx, next); err != nil {
			// A part that is busy may accept in a second, although the files have not changed.
			r.refused, r.checkAt = refused, time.Now().Add(min(time.Second<<min(refused-1, 10), maxRefuse))
		}
	}
	if err != nil {
		r.revokeSecrets(next)
		return r.refuse(ctx, next, err)
	}

	c := config.Compare(old.Config, next.Config)
	out := api.Reload{OK: true, Problems: problems(next.Config.Warnings), Added: list(c.Added), Changed: list(c.Changed), Removed: list(c.Removed),
		Others: list(c.Others), Restart: list(next.Restart)}
	r.accept(ctx, old, next, out, time.Since(started))
	r.reportZone(ctx, old, next)

	if summary := out.Summary(); summary != "" {
		r.latest = &api.Reloaded{At: api.At(started), Summary: summary}
	}
	out.Latest = r.latest
	return out
}

// read reads the files until they stop changing. With an error it returns a partial setup.
func (r *reloader) read(ctx context.Context) (*plan.Setup, error) {
	for range maxReads {
		next, err := r.attempt() //nolint:contextcheck // looking for an Ollama has a limit of its own
		if next == nil {
			r.attempted = "" // no digest, so the next check reads again whatever is there
			return nil, err
		}
		r.sources, r.attempted = &next.Config.Sources, next.Config.Sources.Digest()
		if !r.changed(ctx) {
			return next, cmp.Or(err, ctx.Err())
		}
	}
	r.look = config.Look{} // the next poll tries again
	return nil, errors.New("the files of the configuration keep changing; they are read as soon as they hold still")
}

// attempt reads the files once. A panic while reading them fails the reading, not the daemon.
func (r *reloader) attempt() (next *plan.Setup, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.d.log.Error("the configuration cannot be read because of a defect of rouse", "panic", p, "stack", string(debug.Stack()))
			next, err = nil, fmt.Errorf("reading the configuration failed by a defect of rouse: %v", p)
		}
	}()

	main := r.started.Files[0]
	if notRegular(main) {
		return nil, fmt.Errorf("%s is not a plain file", main)
	}

	next = &plan.Setup{At: time.Now()}
	if next.Config, err = plan.Load(main, r.flagHome); err != nil {
		return next, err
	}

	next.Restart = r.restart(next.Config)
	if string(next.Config.Home) != r.d.home.Dir {
		// Defaults below the home have to be below the one that is open, so read again with it.
		if next.Config, err = plan.Load(main, r.d.home.Dir); err != nil {
			return next, err
		}
	}

	next.Plan, err = plan.New(next.Config, r.d.log)
	return next, err
}

// restart lists the settings that cannot change while the daemon runs.
func (r *reloader) restart(cfg *config.Config) []string {
	var out []string
	if home := string(cfg.Home); home != r.d.home.Dir {
		out = append(out, fmt.Sprintf("home is %s until a restart, not %s", r.d.home.Dir, home))
	}
	old := r.started
	if cfg.Log.Format != old.Log.Format {
		out = append(out, fmt.Sprintf("log.format is %s until a restart, not %s", old.Log.Format, cfg.Log.Format))
	}
	for _, setting := range []struct {
		name     string
		old, new any
	}{
		{"engine", old.Engine, cfg.Engine}, {"node", old.Node, cfg.Node}, {"dashboard", old.Dashboard, cfg.Dashboard},
		{"telemetry", old.Telemetry, cfg.Telemetry}, {"replicate", old.Replicate, cfg.Replicate},
	} {
		if !reflect.DeepEqual(setting.old, setting.new) {
			out = append(out, setting.name+" is what it was until a restart")
		}
	}
	return out
}

// apply puts a setup into force. The parts that can refuse come first, and are put back if one does.
func (r *reloader) apply(ctx context.Context, next *plan.Setup) error {
	d, old := r.d, r.d.Current()

	// A run that started before may still print an old secret, so redact those as well.
	next.Plan.Runner.Secrets = union(next.Plan.Runner.Secrets, old.Plan.Runner.Secrets)

	// Runs of the old and of the new jobs can start until all parts have switched.
	d.runner.Set(merged(old.Plan.Runner, next.Plan.Runner))
	err := d.watcher.Set(ctx, d.Nodes.OwnWatches(next.Plan))
	if err == nil {
		if err = d.Nodes.SetSchedules(ctx, next.Plan); err != nil {
			err = errors.Join(err, d.watcher.Set(ctx, d.Nodes.OwnWatches(old.Plan)))
		}
	}
	if err != nil {
		d.runner.Set(old.Plan.Runner)
		return fmt.Errorf("the new configuration could not be put into force; it is tried again: %w", err)
	}

	d.setup.Store(next)
	d.Nodes.SaveConfigHash(ctx, next.Config)
	d.runner.Set(next.Plan.Runner)
	limits := next.Config.Limits
	d.scheduler.SetLanes(limits.Runs)
	dispatcher := d.dispatching.Load()
	dispatcher.SetLanes(limits.Runs, limits.RunsPerAgent)
	d.Nodes.SetLanes(ctx, limits.Runs)
	dispatcher.SetDrain(time.Duration(limits.Drain))
	d.notifier.SetChannels(next.Plan.Channels, plan.ChannelRules(next.Config, &d.session))
	if r.log != nil {
		r.log.Set(next.Config)
	}

	// What kept runs in the queue (a missing model, a lower limit) may be gone.
	d.runner.AskNearby(ctx)
	dispatcher.Reconsider()
	return nil
}

// revokeSecrets takes removed secrets away from agents at once. Their values are still redacted.
func (r *reloader) revokeSecrets(next *plan.Setup) {
	if next == nil || next.Config == nil || len(next.Config.Secrets.Unset) == 0 {
		return
	}

	gone, now := next.Config.Secrets.Unset, *r.d.Current()
	// Setups are immutable, and runs that have started share this one: change a copy.
	held := *now.Plan
	held.Runner.Agents = maps.Clone(held.Runner.Agents)
	for name, a := range held.Runner.Agents {
		a.Secrets = slices.Clone(a.Secrets)
		for i := range a.Secrets {
			if slices.Contains(gone, a.Secrets[i].Name) {
				a.Secrets[i].Value = ""
			}
		}
		held.Runner.Agents[name] = a
	}

	now.Plan = &held
	r.d.setup.Store(&now)
	r.d.runner.Set(held.Runner)
}

// merged has the agents and jobs of both plans; where both have one, it is the second's.
func merged(old, next agentplan.Plan) agentplan.Plan {
	out := next
	out.Agents, out.Jobs = maps.Clone(old.Agents), maps.Clone(old.Jobs)
	maps.Copy(out.Agents, next.Agents)
	maps.Copy(out.Jobs, next.Jobs)
	return out
}

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// notRegular says whether a file is a pipe or the like, whose content is gone once it was read.
func notRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && !info.Mode().IsRegular()
}

// accept records and logs that another configuration is in force.
func (r *reloader) accept(ctx context.Context, old, next *plan.Setup, out api.Reload, took time.Duration) {
	r.mu.Lock()
	recovered := len(r.problems) > 0
	r.problems, r.wanted = nil, nil
	r.mu.Unlock()
	r.reported = map[string]int{} // a problem that comes back later is reported again
	log := r.d.log
	for _, w := range next.Config.Warnings {
		if !slices.ContainsFunc(old.Config.Warnings, func(o config.Problem) bool { return o.Path == w.Path && o.Message == w.Message }) {
			log.Warn("the configuration", "file", w.File, "line", w.Line, "key", w.Path, "warning", w.Message)
		}
	}

	for _, what := range next.Restart {
		if !slices.Contains(old.Restart, what) {
			log.Warn("a setting needs a restart", "setting", what)
		}
	}

	message := "the configuration was read again"
	if recovered {
		message = "the configuration is good again"
	}

	log.Info(message, "changes", cmp.Or(out.Summary(), "none"), "took", took.Round(time.Millisecond))
	// A reload that changed nothing is not worth an event, unless it ends a problem.
	if text := out.Summary(); text != "" || recovered {
		r.record(ctx, "config.reloaded", map[string]any{"summary": text})
	}
}

// refuse reports why the configuration on disk is not in force, each problem once.
func (r *reloader) refuse(ctx context.Context, next *plan.Setup, err error) api.Reload {
	// At shutdown the parts refuse because they stop; that is no problem of the configuration.
	if ctx.Err() != nil {
		return refusal([]api.Problem{{Message: "the daemon stops"}})
	}

	found, wanted := r.redactProblems(next, asProblems(r.started.Files[0], err)), []config.SecretRef(nil)
	if next != nil && next.Config != nil {
		wanted = next.Config.Secrets.Refs
	}
	r.mu.Lock()
	r.problems, r.wanted = found, wanted
	r.mu.Unlock()

	// The same problems come up at every check while they last.
	text, held := formatProblems(found, len(found)), api.LocalTime(r.d.Current().At, r.d.Zone())
	if r.reported[text] == 0 {
		r.reported[text] = 1
		r.logProblems(found, held)
	}

	// A part that refuses once or twice is probably busy.
	if r.reported[text] == 1 && (r.refused == 0 || r.refused > 2) && r.notify(ctx, found, held) {
		r.reported[text] = 2
	}
	return refusal(found)
}

func (r *reloader) logProblems(found []api.Problem, held string) {
	for i, p := range found {
		if i == maxLogged {
			r.d.log.Error("the configuration has more problems", "number", len(found)-i)
			return
		}
		r.d.log.Error("the configuration on disk cannot be used; the last good one holds", "since", held,
			"file", p.File, "line", p.Line, "column", p.Column, "key", p.Path, "problem", p.Message, "hint", p.Hint)
	}
}

// notify notifies the owner on every channel, and records an event.
func (r *reloader) notify(ctx context.Context, found []api.Problem, held string) bool {
	r.record(ctx, "config.refused", map[string]any{"error": formatProblems(found, maxNotified)})
	var notices []ledger.Notice
	cfg := r.d.Current().Config
	for _, channel := range r.d.Current().Plan.Runner.Channels {
		if channel == config.DefaultChannel && !cfg.Names(channel) && !r.d.session.Exists() {
			continue
		}
		notices = append(notices, ledger.Notice{Channel: channel, Title: "rouse: the configuration cannot be used",
			Body: formatProblems(found, maxNotified) + "\nThat of " + held + " holds."})
	}

	err := r.d.ledger.AppendNotices(ctx, notices...)
	if err != nil && ctx.Err() == nil {
		r.d.log.Error("the owner could not be notified of the problem with the configuration", "error", err)
	}
	return err == nil
}

func (r *reloader) record(ctx context.Context, kind string, data map[string]any) {
	text, err := json.Marshal(data)
	if err == nil {
		err = r.d.ledger.AppendEvents(ctx, ledger.Event{Kind: kind, At: time.Now(), Data: text})
	}
	if err != nil && ctx.Err() == nil {
		r.d.log.Error("an event could not be recorded", "event", kind, "error", err)
	}
}

// redactProblems are problems without what must not be shown, of either configuration.
func (r *reloader) redactProblems(next *plan.Setup, found []api.Problem) []api.Problem {
	secrets := r.d.Current().Plan.Runner.Secrets
	if next != nil && next.Config != nil {
		secrets = union(next.Config.Secrets.Values, secrets)
	}

	redactor := redact.New(secrets)
	for i, p := range found {
		found[i].Message, found[i].Hint, found[i].Name = redactor.Replace(p.Message), redactor.Replace(p.Hint), redactor.Replace(p.Name)
	}

	return found
}

// refusal is the answer to a reload that changed nothing.
func refusal(found []api.Problem) api.Reload {
	return api.Reload{Problems: found, Added: []string{}, Changed: []string{}, Removed: []string{}, Others: []string{}, Restart: []string{}}
}

// list makes nil an empty list, which is [] and not null in JSON.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// asProblems turns an error into the problems it consists of.
func asProblems(file string, err error) []api.Problem {
	var all *config.Errors
	if errors.As(err, &all) {
		return problems(all.Problems)
	}
	return []api.Problem{{File: file, Message: err.Error()}}
}

func problems(found []config.Problem) []api.Problem {
	out := make([]api.Problem, len(found))
	for i, p := range found {
		out[i] = api.Problem(p)
	}
	return out
}

// formatProblems are the first problems as lines.
func formatProblems(found []api.Problem, most int) string {
	var lines []string
	for i, p := range found {
		if i == most {
			lines = append(lines, fmt.Sprintf("… and %d more", len(found)-i))
			break
		}
		lines = append(lines, config.Problem(p).String())
	}

	return strings.Join(lines, "\n")
}

// followZone rebuilds the plan if the machine's time zone has changed. It does not read the files.
func (r *reloader) followZone(ctx context.Context) {
	old := r.d.Current()
	zone, changes := schedule.MachineZone()
	if !changes || old.Config.Timezone != "" || zone == old.Config.Zone() {
		r.zone = zone
		return
	}
	if zone != r.zone {
		// Two checks must agree, because ln -sf removes the old link before it creates the new one.
		r.zone = zone
		return
	}

	var err error
	next := *old
	next.Config = old.Config.InZone(zone)
	next.Plan, err = plan.New(next.Config, r.d.log)
	if err == nil {
		for name, a := range next.Plan.Runner.Agents {
			a.Secrets = old.Plan.Runner.Agents[name].Secrets // keep the current secrets, because some may have been revoked
			next.Plan.Runner.Agents[name] = a
		}
		err = r.apply(ctx, &next)
	}
	if err != nil {
		r.d.log.Warn("cannot apply the new time zone of the machine; trying again", "zone", zone.String(), "error", err)
		return
	}
	r.reportZone(ctx, old, &next)
}

// reportZone logs and records a change of the machine's time zone since the previous setup.
func (r *reloader) reportZone(ctx context.Context, old, next *plan.Setup) {
	from, to, now := old.Config.Zone(), next.Config.Zone(), time.Now()
	if from == to || old.Config.Timezone != "" || next.Config.Timezone != "" {
		return
	}

	was := map[string][]*schedule.Schedule{}
	for _, j := range old.Plan.Jobs {
		was[j.Name] = j.Schedules
	}
	same := func(a, b *schedule.Schedule) bool { return a.Next(now).Equal(b.Next(now)) }
	var moved []string
	for _, j := range next.Plan.Jobs {
		if s, ok := was[j.Name]; ok && !slices.EqualFunc(s, j.Schedules, same) {
			moved = append(moved, j.Name)
		}
	}

	summary := fmt.Sprintf("from %s to %s", from, to)
	if len(moved) > 0 {
		summary += "; other times for " + text.List(moved, 10)
	}
	r.d.log.Warn("the time zone of the machine changed", "from", from.String(), "to", to.String(), "jobs", text.List(moved, 10))
	r.record(ctx, "zone.changed", map[string]any{"from": from.String(), "to": to.String(), "summary": summary})
}
