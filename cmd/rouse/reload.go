package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
	"rouse/scheduler/dispatch"
)

const (
	maxReads  = 10          // of files that change while they are read
	maxRefuse = time.Minute // longest pause after a part refused a configuration
	maxLogged = 20          // problems of one reading
	maxTold   = 5           // problems in a notice
)

// reloader puts another configuration into force while the daemon runs. One goroutine reads
// and applies; what it finds wrong changes nothing.
type reloader struct {
	d          *daemon
	dispatcher *dispatch.Dispatcher // once it serves
	flagHome   string
	started    *config.Config
	level      *slog.LevelVar // nil: it is not ours to change
	asks       chan chan web.Reload
	pokes      chan struct{} // capacity 1: read again, nobody waits for what becomes of it
	over       chan struct{}

	// Of the loop alone.
	files   follower
	sources *config.Sources // of the last reading
	tried   string          // their digest
	refused int             // how often in a row a part has refused
	told    map[string]int  // problems that the log knows of (1), and the owner (2)

	mu       sync.Mutex
	problems []web.Problem      // of what is on disk; empty when it is in force
	wanted   []config.SecretRef // what asks for secrets there
}

func newReloader(d *daemon, o daemonOptions) *reloader {
	r := &reloader{
		d: d, flagHome: o.flagHome, started: o.config, level: o.level, asks: make(chan chan web.Reload), pokes: make(chan struct{}, 1),
		over: make(chan struct{}), sources: &o.config.Sources, told: map[string]int{},
	}
	r.tried = r.sources.Digest()
	r.files.follows = !once(o.config.Files[0])
	return r
}

// Reload implements web.Engine.
func (d *daemon) Reload(ctx context.Context) (web.Reload, error) {
	stopped := &web.Error{Status: 409, Message: "no daemon serves this home; the configuration is read when one starts"}
	if d.reloads == nil {
		return web.Reload{}, stopped
	}
	answer := make(chan web.Reload, 1)
	select {
	case d.reloads.asks <- answer:
	case <-d.reloads.over:
		return web.Reload{}, stopped
	case <-ctx.Done():
		return web.Reload{}, ctx.Err()
	}
	select {
	case out := <-answer:
		return out, nil
	case <-d.reloads.over:
		return web.Reload{}, stopped
	case <-ctx.Done():
		return web.Reload{}, ctx.Err()
	}
}

// poke has the configuration read again.
func (r *reloader) poke() {
	select {
	case r.pokes <- struct{}{}:
	default:
	}
}

// troubles are why what is on disk is not in force.
func (r *reloader) troubles() []web.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems
}

// wants are what asks for secrets in what is on disk and not in force.
func (r *reloader) wants() []config.SecretRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

// reload reads the files and puts what they say into force, all of it or nothing.
func (r *reloader) reload(ctx context.Context) web.Reload {
	if !r.files.follows {
		return refusal([]web.Problem{{File: r.started.Files[0], Message: "is not a plain file: it was read when the daemon started, and cannot be read again"}})
	}
	began, old := time.Now(), r.d.current()
	next, err := r.read(ctx)
	if err == nil {
		err = r.apply(ctx, next)
		if r.refused++; err == nil {
			r.refused = 0
		}
	} else {
		r.refused = 0
	}
	if err != nil {
		if r.refused > 0 {
			r.files.lookAt = time.Now().Add(min(time.Second<<min(r.refused-1, 10), maxRefuse))
		}
		r.withdraw(next)
		return r.refuse(ctx, next, err)
	}
	c := config.Compare(old.config, next.config)
	out := web.Reload{OK: true, Problems: problems(next.config.Warnings), Added: list(c.Added), Changed: list(c.Changed), Removed: list(c.Removed),
		Others: list(c.Others), Restart: list(next.restart)}
	r.accept(ctx, old, next, out, time.Since(began))
	return out
}

// read reads the files until they hold still, and makes a setup of them. What could be read
// of a wrong one is returned beside the error.
func (r *reloader) read(ctx context.Context) (*setup, error) {
	for range maxReads {
		next, err := r.attempt()
		if next == nil {
			r.tried = ""
			return nil, err
		}
		r.sources, r.tried = &next.config.Sources, next.config.Sources.Digest()
		r.arm() // before looking again: from here on a change is heard
		if r.sources.Now().Digest() == r.tried {
			return next, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(settleFor):
		}
	}
	r.hint()
	return nil, errors.New("the files of the configuration keep changing; they are read as soon as they hold still")
}

// attempt reads the files once. A defect in reading them costs the reading, not the daemon.
func (r *reloader) attempt() (next *setup, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.d.log.Error("the configuration cannot be read because of a defect of rouse", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("reading the configuration failed by a defect of rouse: %v", p)
		}
	}()
	main := r.started.Files[0]
	if once(main) {
		return nil, fmt.Errorf("%s is not a plain file", main)
	}
	next = &setup{at: time.Now()}
	if next.config, err = load(main, r.flagHome); err != nil {
		return next, err
	}
	next.restart = r.restart(next.config)
	if string(next.config.Home) != r.d.home.dir {
		// What lies in the home by default lies in the one that is open.
		if next.config, err = load(main, r.d.home.dir); err != nil {
			return next, err
		}
	}
	next.plan, err = newPlan(next.config, r.d.log)
	return next, err
}

// restart lists what cannot change while the daemon runs.
func (r *reloader) restart(cfg *config.Config) []string {
	var out []string
	if home := string(cfg.Home); home != r.d.home.dir {
		out = append(out, fmt.Sprintf("home is %s until a restart, not %s", r.d.home.dir, home))
	}
	if old := r.started.Log.Format; cfg.Log.Format != old {
		out = append(out, fmt.Sprintf("log.format is %s until a restart, not %s", old, cfg.Log.Format))
	}
	return out
}

// apply puts a setup into force. What can refuse comes first; then nothing has changed.
func (r *reloader) apply(ctx context.Context, next *setup) error {
	d, old := r.d, r.d.current()
	// What a run was told in confidence stays a secret, whoever is configured now.
	next.plan.plan.Secrets = union(next.plan.plan.Secrets, old.plan.plan.Secrets)
	// In between, runs of what is new and of what goes away can both begin.
	d.runner.Set(both(old.plan.plan, next.plan.plan))
	err := d.watcher.Set(ctx, next.plan.watches)
	if err == nil {
		if err = d.scheduler.Set(ctx, next.plan.jobs, next.plan.selfScheduling); err != nil {
			err = errors.Join(err, d.watcher.Set(ctx, old.plan.watches))
		}
	}
	if err != nil {
		d.runner.Set(old.plan.plan)
		return fmt.Errorf("the new configuration could not be put into force; it is tried again: %w", err)
	}
	d.setup.Store(next)
	d.runner.Set(next.plan.plan)
	limits := next.config.Limits
	d.scheduler.SetLanes(limits.Runs)
	r.dispatcher.SetLanes(limits.Runs, limits.RunsPerAgent)
	r.dispatcher.SetDrain(time.Duration(limits.Drain))
	d.notifier.SetChannels(next.plan.ways())
	if r.level != nil {
		r.level.Set(logLevel(next.config.Log))
	}
	r.dispatcher.Reconsider()
	return nil
}

// withdraw takes from the agents the secrets that their owner has removed, though what is on disk
// cannot come into force without them. Their values are still blacked out.
func (r *reloader) withdraw(next *setup) {
	if next == nil || next.config == nil || len(next.config.Unset()) == 0 {
		return
	}
	gone, now := next.config.Unset(), *r.d.current()
	held := *now.plan
	held.plan.Agents = maps.Clone(held.plan.Agents)
	for name, a := range held.plan.Agents {
		a.Secrets = slices.Clone(a.Secrets)
		for i := range a.Secrets {
			if slices.Contains(gone, a.Secrets[i].Name) {
				a.Secrets[i].Value = ""
			}
		}
		held.plan.Agents[name] = a
	}
	now.plan = &held
	r.d.setup.Store(&now)
	r.d.runner.Set(held.plan)
}

// both are two plans at once; what they have in common is the second's.
func both(old, next agent.Plan) agent.Plan {
	out := next
	out.Agents, out.Jobs = maps.Clone(old.Agents), maps.Clone(old.Jobs)
	maps.Copy(out.Agents, next.Agents)
	maps.Copy(out.Jobs, next.Jobs)
	return out
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// once says whether what is in a file is gone when it was read: it is a pipe, or the like.
func once(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && !info.Mode().IsRegular()
}

// accept tells that another configuration is in force.
func (r *reloader) accept(ctx context.Context, old, next *setup, out web.Reload, took time.Duration) {
	r.mu.Lock()
	recovered := len(r.problems) > 0
	r.problems, r.wanted = nil, nil
	r.mu.Unlock()
	r.told = map[string]int{}
	log := r.d.log
	for _, w := range next.config.Warnings {
		if !slices.ContainsFunc(old.config.Warnings, func(o config.Problem) bool { return o.Path == w.Path && o.Message == w.Message }) {
			log.Warn("the configuration", "file", w.File, "line", w.Line, "key", w.Path, "warning", w.Message)
		}
	}
	for _, what := range next.restart {
		if !slices.Contains(old.restart, what) {
			log.Warn("a setting needs a restart", "setting", what)
		}
	}
	message := "the configuration was read again"
	if recovered {
		message = "the configuration is good again"
	}
	log.Info(message, "changes", orElse(summary(out), "none"), "took", took.Round(time.Millisecond))
	if text := summary(out); text != "" || recovered {
		r.record(ctx, "config.reloaded", map[string]any{"summary": text})
	}
}

// summary says what is not what it was.
func summary(out web.Reload) string {
	var parts []string
	for _, group := range []struct {
		what  string
		names []string
	}{{"added", out.Added}, {"changed", out.Changed}, {"removed", out.Removed}, {"also", out.Others}} {
		if len(group.names) > 0 {
			parts = append(parts, group.what+" "+strings.Join(few(group.names), ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// few are names as a log line can hold them.
func few(names []string) []string {
	if len(names) <= maxLogged {
		return names
	}
	return append(slices.Clone(names[:maxLogged]), fmt.Sprintf("and %d more", len(names)-maxLogged))
}

// refuse tells why what is on disk is not in force, each problem once.
func (r *reloader) refuse(ctx context.Context, next *setup, err error) web.Reload {
	if ctx.Err() != nil {
		return refusal([]web.Problem{{Message: "the daemon stops"}})
	}
	found := r.blackened(next, listed(r.started.Files[0], err))
	r.mu.Lock()
	r.problems, r.wanted = found, nil
	if next != nil && next.config != nil {
		r.wanted = next.config.SecretRefs()
	}
	r.mu.Unlock()
	text, held := inLines(found, len(found)), r.d.current().at.Local().Format(time.DateTime)
	if r.told[text] == 0 {
		r.told[text] = 1
		r.logProblems(found, held)
	}
	// A part that refuses once or twice is busy, which passes.
	if r.told[text] == 1 && (r.refused == 0 || r.refused > 2) && r.notify(ctx, found, held) {
		r.told[text] = 2
	}
	return refusal(found)
}

func (r *reloader) logProblems(found []web.Problem, held string) {
	for i, p := range found {
		if i == maxLogged {
			r.d.log.Error("the configuration has more problems", "number", len(found)-i)
			return
		}
		r.d.log.Error("the configuration on disk cannot be used; the last good one holds", "since", held,
			"file", p.File, "line", p.Line, "column", p.Column, "key", p.Path, "problem", p.Message, "hint", p.Hint)
	}
}

// notify tells the owner on every channel, and the record.
func (r *reloader) notify(ctx context.Context, found []web.Problem, held string) bool {
	r.record(ctx, "config.refused", map[string]any{"error": inLines(found, maxTold)})
	var notices []ledger.Notice
	for _, channel := range r.d.current().plan.channels {
		notices = append(notices, ledger.Notice{Channel: channel, Title: "rouse: the configuration cannot be used",
			Body: inLines(found, maxTold) + "\nThat of " + held + " holds."})
	}
	err := r.d.ledger.AppendNotices(ctx, notices...)
	if err != nil && ctx.Err() == nil {
		r.d.log.Error("nobody was told of the problem with the configuration", "error", err)
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

// blackened are problems without what must not be shown, of either configuration.
func (r *reloader) blackened(next *setup, found []web.Problem) []web.Problem {
	secrets := r.d.current().plan.plan.Secrets
	if next != nil && next.config != nil {
		secrets = union(next.config.Secrets(), secrets)
	}
	for i := range found {
		for _, s := range secrets {
			found[i].Message = strings.ReplaceAll(found[i].Message, s, "[secret]")
			found[i].Hint = strings.ReplaceAll(found[i].Hint, s, "[secret]")
			found[i].Name = strings.ReplaceAll(found[i].Name, s, "[secret]")
		}
	}
	return found
}

func refusal(found []web.Problem) web.Reload {
	return web.Reload{Problems: found, Added: []string{}, Changed: []string{}, Removed: []string{}, Others: []string{}, Restart: []string{}}
}

// list is never null in JSON.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// listed are the problems that an error stands for.
func listed(file string, err error) []web.Problem {
	var all *config.Errors
	if errors.As(err, &all) {
		return problems(all.Problems)
	}
	return []web.Problem{{File: file, Message: err.Error()}}
}

func problems(found []config.Problem) []web.Problem {
	out := make([]web.Problem, len(found))
	for i, p := range found {
		out[i] = web.Problem(p)
	}
	return out
}

// inLines are the first problems as lines.
func inLines(found []web.Problem, most int) string {
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
