// Package reload reads the configuration again when its files change or somebody asks for that, and puts it into force: all of
// it or nothing. A configuration with a problem is reported, and the last good one stays.
package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/supervision"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
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

// Options are the parts of a daemon that a new configuration changes.
type Options struct {
	Home     string
	FlagHome string         // of --home
	Started  *config.Config // the configuration that the daemon started with
	LogVar   *logging.Var   // nil if the settings of the logger cannot be changed
	Logger   *slog.Logger

	Setup       *atomic.Pointer[plan.Setup] // the configuration in force
	Ledger      *ledger.Ledger
	Runner      *agent.Runner
	Watcher     *watcher.Watcher
	Scheduler   *scheduler.Scheduler
	Dispatcher  *atomic.Pointer[dispatch.Dispatcher]
	Notifier    *notify.Notifier
	Session     *notify.Session // desktop session
	Nodes       *cluster.Self
	Supervision *supervision.Supervision
}

// Reloader replaces the configuration, unless it has a problem. One goroutine reads and applies. A command has none: nil.
type Reloader struct {
	Options
	Follows bool // false if the configuration came through a pipe, once

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

// New returns a Reloader. The configuration in force must be stored in Setup.
func New(o Options) *Reloader {
	r := &Reloader{Options: o, calls: make(chan func(context.Context)), requested: make(chan struct{}, 1), calendars: make(chan struct{}, 1),
		stopped: make(chan struct{}), sources: &o.Started.Sources, reported: map[string]int{}}
	r.attempted = r.sources.Digest()
	r.Follows = !notRegular(o.Started.Files[0])
	return r
}

// Run reads the files when they have changed or a reload was requested, until ctx ends. A reload replaces what the triggers watch, so
// it waits until they are ready.
func (r *Reloader) Run(ctx context.Context, ready <-chan struct{}) {
	defer close(r.stopped)
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}

	timer := time.NewTimer(0) // the files may have changed since they were read at the start
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			r.poll(ctx)
			r.FollowZone(ctx)
			timer.Reset(lookEvery)
		case <-r.requested:
			r.Supervision.Reload(ctx, func() { r.reload(ctx) })
		case <-r.calendars:
			r.recalculate(ctx)
		case call := <-r.calls:
			r.Supervision.Reload(ctx, func() { call(ctx) })
		}
	}
}

// poll reads changed files. If there are problems, it also reads unchanged files every checkEvery.
func (r *Reloader) poll(ctx context.Context) {
	if !r.Follows {
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
	if r.changed(ctx) || due && len(r.ProblemsOnDisk()) > 0 {
		r.reload(ctx)
	}
}

// Reload reads the configuration and applies it.
func (r *Reloader) Reload(ctx context.Context) (api.Reload, error) {
	stopped := &api.Error{Status: 409, Message: "no daemon serves this home; the configuration is read when one starts"}
	if r == nil {
		return api.Reload{}, stopped
	}

	var out api.Reload
	if !r.Do(ctx, func(ctx context.Context) { out = r.reload(ctx) }) {
		return api.Reload{}, cmp.Or(ctx.Err(), error(stopped))
	}
	return out, nil
}

// Do has the loop call a function. It returns false if the loop or ctx ends before the function has returned.
func (r *Reloader) Do(ctx context.Context, call func(context.Context)) bool {
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

// ConfigProblem returns why the configuration on disk is not in use, or "". If load is true, it loads a newer configuration first.
func (r *Reloader) ConfigProblem(ctx context.Context, load bool) string {
	if r == nil {
		return ""
	}
	if load || len(r.ProblemsOnDisk()) > 0 { // the mistake may be corrected by now
		r.Do(ctx, r.CheckNow)
	}

	found := r.ProblemsOnDisk()
	if len(found) == 0 {
		return ""
	}
	s := r.Setup.Load()
	return fmt.Sprintf("the configuration on disk has a mistake, so the one loaded at %s is used: %s", api.LocalTime(s.At, s.Config.Zone()), text.OneLine(config.Problem(found[0]).String()))
}

// CheckNow checks the time zone of the machine, and reads the files if they differ from the last reading.
func (r *Reloader) CheckNow(ctx context.Context) {
	r.FollowZone(ctx)
	if r.Follows && r.changed(ctx) {
		r.reload(ctx)
	}
}

// changed reports whether the files differ from the last reading. It waits until they are unchanged.
func (r *Reloader) changed(ctx context.Context) bool {
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

// ReloadSoon has the configuration read again without waiting for the result.
func (r *Reloader) ReloadSoon() { wakeUp(r.requested) }

// RecalculateSoon has the schedules worked out again after calendars have changed.
func (r *Reloader) RecalculateSoon() { wakeUp(r.calendars) }

// wakeUp sends to a channel of capacity 1, unless a signal is pending.
func wakeUp(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// recalculate works out again what is due, by the same configuration. Here, where no other one can come into force meanwhile.
func (r *Reloader) recalculate(ctx context.Context) {
	if err := r.Nodes.SetSchedules(ctx, r.Setup.Load().Plan); err != nil && ctx.Err() == nil {
		r.Logger.Warn("what has changed in calendars could not be put into force; it is tried again", "error", err)
		time.AfterFunc(time.Second, r.RecalculateSoon)
	}
}

// Stopped is closed when Run has ended.
func (r *Reloader) Stopped() <-chan struct{} { return r.stopped }

// ProblemsOnDisk says why the configuration on disk is not in force.
func (r *Reloader) ProblemsOnDisk() []api.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems
}

// WantedSecrets are the secrets that the configuration on disk refers to while it is not in force.
func (r *Reloader) WantedSecrets() []config.SecretRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

// reload reads the files and puts them into force, all of it or nothing.
func (r *Reloader) reload(ctx context.Context) api.Reload {
	if !r.Follows {
		return refusal([]api.Problem{{File: r.Started.Files[0], Message: "is not a plain file: it was read when the daemon started, and cannot be read again"}})
	}

	started, old := time.Now(), r.Setup.Load()
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
func (r *Reloader) read(ctx context.Context) (*plan.Setup, error) {
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
func (r *Reloader) attempt() (next *plan.Setup, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Logger.Error("the configuration cannot be read because of a defect of rouse", "panic", p, "stack", string(debug.Stack()))
			next, err = nil, fmt.Errorf("reading the configuration failed by a defect of rouse: %v", p)
		}
	}()

	main := r.Started.Files[0]
	if notRegular(main) {
		return nil, fmt.Errorf("%s is not a plain file", main)
	}

	next = &plan.Setup{At: time.Now()}
	if next.Config, err = plan.Load(main, r.FlagHome); err != nil {
		return next, err
	}

	next.Restart = r.restart(next.Config)
	if string(next.Config.Home) != r.Home {
		// Defaults below the home have to be below the one that is open, so read again with it.
		if next.Config, err = plan.Load(main, r.Home); err != nil {
			return next, err
		}
	}

	next.Plan, err = plan.New(next.Config, r.Logger)
	return next, err
}

// restart lists the settings that cannot change while the daemon runs.
func (r *Reloader) restart(cfg *config.Config) []string {
	var out []string
	if home := string(cfg.Home); home != r.Home {
		out = append(out, fmt.Sprintf("home is %s until a restart, not %s", r.Home, home))
	}
	old := r.Started
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

// notRegular says whether a file is a pipe or the like, whose content is gone once it was read.
func notRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && !info.Mode().IsRegular()
}
