// Package reload reloads the configuration when its files change or on request. It applies either
// all changes or no change. If the new configuration has a problem, it reports the problem and
// keeps the old one.
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
	lookEvery   = 2 * time.Second        // interval between checks of names, sizes and times of the files
	checkEvery  = 30 * time.Second       // interval between comparisons of their content
	debounceFor = 300 * time.Millisecond // time that the content must be unchanged
	maxReads    = 10                     // maximum number of attempts if files change during reading
	maxRefuse   = time.Minute            // longest pause after a part failed to apply a configuration
	maxLogged   = 20                     // maximum number of problems logged per reading
	maxNotified = 5                      // maximum number of problems in a notice
)

// Options holds the parts of a daemon that a new configuration changes.
type Options struct {
	Home     string
	FlagHome string         // value of --home
	Started  *config.Config // configuration at the start of the daemon
	LogVar   *logging.Var   // nil if the settings of the logger cannot change
	Logger   *slog.Logger

	Setup       *atomic.Pointer[plan.Setup] // configuration in force
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

// Reloader replaces the configuration unless the new one has a problem. One goroutine reads and
// applies. Commands use a nil Reloader.
type Reloader struct {
	Options
	Follows bool // false if the configuration was read from a pipe

	calls     chan func(context.Context)
	requested chan struct{} // capacity 1; requests a reload without waiting for it
	calendars chan struct{} // capacity 1; signals that a calendar changed
	stopped   chan struct{}

	// The loop alone uses these fields, so they need no lock.
	sources   *config.Sources // sources of the last reading
	attempted string          // digest of sources
	look      config.Look     // metadata of sources at the last check
	checkAt   time.Time       // time of the next comparison of the content
	refused   int             // number of consecutive failures to apply
	reported  map[string]int  // problems by text; 1 means logged, 2 means the owner was notified
	zone      *time.Location  // machine's time zone at the last check
	latest    *api.Reloaded   // last reading that changed anything

	mu       sync.Mutex
	problems []api.Problem      // problems of the configuration on disk; empty if it is active
	wanted   []config.SecretRef // secrets that it refers to
}

// New returns a Reloader. The caller must first store the active configuration in Setup.
func New(o Options) *Reloader {
	r := &Reloader{Options: o, calls: make(chan func(context.Context)), requested: make(chan struct{}, 1), calendars: make(chan struct{}, 1),
		stopped: make(chan struct{}), sources: &o.Started.Sources, reported: map[string]int{}}
	r.attempted = r.sources.Digest()
	r.Follows = !notRegular(o.Started.Files[0])
	return r
}

// Run reads the files after changes or requests until ctx ends. It first waits for ready, because
// a reload replaces the triggers.
func (r *Reloader) Run(ctx context.Context, ready <-chan struct{}) {
	defer close(r.stopped)
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}

	timer := time.NewTimer(0) // the files may have changed since the start
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

// Do calls a function in the loop. It returns false if the loop or ctx ends before the function
// returns.
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

// ConfigProblem returns the reason why the configuration on disk is not active, or "". If load is
// true, it loads a newer configuration first.
func (r *Reloader) ConfigProblem(ctx context.Context, load bool) string {
	if r == nil {
		return ""
	}
	if load || len(r.ProblemsOnDisk()) > 0 { // the mistake may be fixed by now
		r.Do(ctx, r.CheckNow)
	}

	found := r.ProblemsOnDisk()
	if len(found) == 0 {
		return ""
	}
	s := r.Setup.Load()
	return fmt.Sprintf("the configuration on disk has a mistake, so the one loaded at %s is used: %s", api.LocalTime(s.At, s.Config.Zone()), text.OneLine(config.Problem(found[0]).String()))
}

// CheckNow checks the machine's time zone, and reads the files if they differ from the last
// reading.
func (r *Reloader) CheckNow(ctx context.Context) {
	r.FollowZone(ctx)
	if r.Follows && r.changed(ctx) {
		r.reload(ctx)
	}
}

// changed reports whether the files differ from the last reading. It waits until they stop
// changing.
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
	r.look = config.Look{} // forces another attempt at the next poll
	return false
}

// ReloadSoon requests a reload without waiting for it.
func (r *Reloader) ReloadSoon() { wakeUp(r.requested) }

// RecalculateSoon requests a recalculation of the schedules after calendars have changed.
func (r *Reloader) RecalculateSoon() { wakeUp(r.calendars) }

// wakeUp sends to a channel of capacity 1 unless a signal is pending.
func wakeUp(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// recalculate updates the schedules with the same configuration. It runs in the loop, so the
// configuration cannot change meanwhile.
func (r *Reloader) recalculate(ctx context.Context) {
	if err := r.Nodes.SetSchedules(ctx, r.Setup.Load().Plan); err != nil && ctx.Err() == nil {
		r.Logger.Warn("what has changed in calendars could not be put into force; it is tried again", "error", err)
		time.AfterFunc(time.Second, r.RecalculateSoon)
	}
}

// Stopped returns a channel that is closed when Run has ended.
func (r *Reloader) Stopped() <-chan struct{} { return r.stopped }

// ProblemsOnDisk returns the problems of the configuration on disk. It is empty if that is active.
func (r *Reloader) ProblemsOnDisk() []api.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems
}

// WantedSecrets returns the secrets of the configuration on disk while it is not active.
func (r *Reloader) WantedSecrets() []config.SecretRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

// reload reads the files and applies either all changes or no change.
func (r *Reloader) reload(ctx context.Context) api.Reload {
	if !r.Follows {
		return refusal([]api.Problem{{File: r.Started.Files[0], Message: "is not a plain file: it was read when the daemon started, and cannot be read again"}})
	}

	started, old := time.Now(), r.Setup.Load()
	next, err := r.read(ctx)
	refused := r.refused + 1
	r.refused = 0 // only consecutive failures count
	if err == nil {
		if err = r.apply(ctx, next); err != nil {
			// A busy part may succeed in a second, although the files have not changed.
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
		next, err := r.attempt() //nolint:contextcheck // the search for Ollama has its own timeout
		if next == nil {
			r.attempted = "" // without a digest, the next check reads again
			return nil, err
		}
		r.sources, r.attempted = &next.Config.Sources, next.Config.Sources.Digest()
		if !r.changed(ctx) {
			return next, cmp.Or(err, ctx.Err())
		}
	}
	r.look = config.Look{} // forces another attempt at the next poll
	return nil, errors.New("the files of the configuration keep changing; they are read as soon as they hold still")
}

// attempt reads the files once. A panic fails the reading, not the daemon.
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
		// Default paths must be below the home that is open, so read again with that home.
		if next.Config, err = plan.Load(main, r.Home); err != nil {
			return next, err
		}
	}

	next.Plan, err = plan.New(next.Config, r.Logger)
	return next, err
}

// restart lists the changed settings that need a restart of the daemon.
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

// notRegular reports whether a file is a pipe or similar, which can be read only once.
func notRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && !info.Mode().IsRegular()
}
