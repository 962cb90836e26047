package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"rouse/agent/sandbox"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/secret"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/skills/install"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Doctor implements web.Host.
func (d *Daemon) Doctor(ctx context.Context) ([]api.Check, error) {
	now := d.Current()
	checks := []api.Check{d.checkConfig(now), d.checkHome()}
	if now.problem == nil { // what is not known is not judged
		checks = append(checks, now.checkModels())
	}

	checks = append(checks, d.checkSecrets(now), d.checkDatabases(now), d.checkWatches(ctx), checkSkills(now.Config), checkConfinement(ctx))
	if c, some, err := d.checkDefinitions(ctx); err != nil {
		return nil, err
	} else if some {
		checks = append(checks, c)
	}

	checks = append(checks, d.checkNotices(ctx)...)
	c, err := d.ledger.Counts(ctx)
	if err != nil {
		return nil, err
	}

	queue := api.Check{Name: "queue", OK: true, Detail: fmt.Sprintf("%d queued, %d running, %d waiting", c.Queued, c.Running, c.Waiting)}
	held, err := d.checkPauses(ctx)
	if err != nil {
		return nil, err
	}

	if held != "" {
		queue.OK, queue.Detail, queue.Remedy = false, queue.Detail+"; "+held, "see the reason; the runs start by themselves when it is gone"
	}

	return append(checks, queue), nil
}

// checkPauses says why queued runs do not start.
func (d *Daemon) checkPauses(ctx context.Context) (string, error) {
	queued, err := d.ledger.Runs(ctx, ledger.RunFilter{State: domain.StateQueued, Limit: 100})
	if err != nil {
		return "", err
	}

	for _, r := range queued {
		if why := d.runner.Blocked(r); why != "" {
			return fmt.Sprintf("run %d of %s stays queued: %s", r.ID, r.Job, why), nil
		}
	}
	return "", nil
}

func (d *Daemon) checkConfig(s *Setup) api.Check {
	c := api.Check{Name: "configuration", OK: s.problem == nil, Detail: fmt.Sprintf("%s, %s, %s", text.Plural(len(s.Config.Jobs), "job"), text.Plural(len(s.Config.Agents), "agent"), strings.Join(s.Config.Files, ", "))}
	if s.problem != nil {
		c.Detail, c.Remedy = s.problem.Error(), "correct the file, and check it with: rouse config check"
	}

	for _, what := range s.restart {
		c.Detail += "; " + what
	}

	if d.reloads != nil {
		if found := d.reloads.problemsOnDisk(); len(found) > 0 {
			c.OK, c.Detail = false, fmt.Sprintf("%s; that of %s holds", inLines(found, len(found)), s.at.Local().Format(time.DateTime))
			c.Remedy = "correct the file, and check it with: rouse config check; it takes effect by itself"
		}
	}

	return c
}

// checkDefinitions names the jobs that wait for their owner before they begin.
func (d *Daemon) checkDefinitions(ctx context.Context) (c api.Check, some bool, err error) {
	held, err := d.runner.UnapprovedJobs(ctx)
	if err != nil || len(held) == 0 {
		return c, false, err
	}

	jobs := slices.Sorted(maps.Keys(held))
	hows := slices.Compact(slices.Sorted(maps.Values(held)))
	return api.Check{Name: "definitions", Detail: fmt.Sprintf("%s; runs of %s wait until you have approved their definitions", strings.Join(hows, "; "), strings.Join(jobs, ", ")),
		Remedy: "see to it that only you can write there, or look at each and approve it: rouse inbox"}, true, nil
}

func (d *Daemon) checkHome() api.Check {
	c := api.Check{Name: "home", OK: true, Detail: d.home.Dir + " can be written"}
	probe := filepath.Join(d.home.Dir, "doctor.tmp")
	err := errors.Join(os.WriteFile(probe, make([]byte, 1<<16), 0o600), os.Remove(probe))
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "free some space, or check the permissions of "+d.home.Dir
	}
	return c
}

func (s *Setup) checkModels() api.Check {
	c := api.Check{Name: "models", OK: true}
	var names, lacking []string
	for _, m := range s.Config.Models {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Model))
	}

	c.Detail = strings.Join(names, ", ")
	for _, j := range s.Config.Jobs {
		if j.Playbook == nil && len(s.Config.Models) == 0 && config.On(j.Enabled) {
			lacking = append(lacking, string(j.Name))
		}
	}

	switch {
	case len(lacking) > 0:
		c.OK, c.Detail = false, "no model is configured, and these jobs need one: "+strings.Join(lacking, ", ")
		c.Remedy = "add one under models: in the configuration"
	case len(names) == 0:
		c.Detail = "none is configured, and no job needs one"
	}

	return c
}

// checkNotices looks at each channel and at what waits in the outbox.
func (d *Daemon) checkNotices(ctx context.Context) []api.Check {
	var out []api.Check
	for name, err := range d.notifier.Check(ctx) {
		c := api.Check{Name: "channel " + name, OK: true, Detail: "can be reached"}
		if err != nil {
			c.OK, c.Detail = false, err.Error()
			c.Remedy = "start rouse inside a desktop session, or take the channel out of notify: in the jobs"
			if !errors.Is(err, notify.ErrUnavailable) {
				c.Remedy = "see the message"
			}
		}

		out = append(out, c)
	}

	slices.SortFunc(out, func(a, b api.Check) int { return strings.Compare(a.Name, b.Name) })
	waiting, err := d.ledger.UndeliveredNotices(ctx, 100)
	switch {
	case err != nil:
		out = append(out, api.Check{Name: "outbox", Detail: err.Error()})
	case len(waiting) > 0:
		n := waiting[0]
		out = append(out, api.Check{Name: "outbox", Detail: fmt.Sprintf("%d notices were not delivered; the latest: %q (%s)", len(waiting), n.Title, cmp.Or(n.Error, "not tried yet")),
			Remedy: "they are delivered as soon as their channel can be reached"})
	default:
		out = append(out, api.Check{Name: "outbox", OK: true, Detail: "empty"})
	}

	return out
}

func (d *Daemon) checkWatches(ctx context.Context) api.Check {
	c := api.Check{Name: "watches", OK: true, Detail: "no folder is watched"}
	if d.watcher == nil {
		c.Detail = "no daemon runs, so no folder is watched"
		return c
	}

	var fine, bad []string
	used := 0
	for _, st := range d.watcher.Status(ctx) {
		text := fmt.Sprintf("%s: %s (%s, %s", st.Job, st.Path, st.Mode, api.Watch{State: string(st.State), Waiting: st.Waiting, Round: st.Round}.Text())
		used += st.Subscriptions
		if !st.LastScan.IsZero() {
			text += ", scanned " + st.LastScan.Local().Format(time.TimeOnly)
		}

		text += ")"
		switch why := wrongWith(st.Problem, st.Degraded); {
		case why != "":
			bad = append(bad, text+": "+why)
		default:
			fine = append(fine, text)
		}
	}

	switch {
	case len(bad) > 0:
		c.OK, c.Detail, c.Remedy = false, strings.Join(bad, "; "), "see the message; the folder is taken up as soon as it can be"
	case len(fine) > 0:
		c.Detail = strings.Join(fine, "; ")
	}

	if limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil && runtime.GOOS == "linux" {
		c.Detail += fmt.Sprintf(" (%d folders in all; the system allows %s to all programs of a user)", used, strings.TrimSpace(string(limit)))
	}

	return c
}

// checkConfinement tries how strongly commands can be confined here. It stops no run by itself: a
// job whose commands need more says so when it is run.
func checkConfinement(ctx context.Context) api.Check {
	c := api.Check{Name: "confinement", OK: true}
	s, err := sandbox.New(sandbox.Options{})
	if err != nil {
		c.Detail = "commands cannot be confined, so none is started: " + err.Error()
		return c
	}
	defer func() { _ = s.Close() }()

	tier, lacks := s.Tier(ctx)
	c.Detail = "tier " + string(tier)
	if tier == sandbox.TierD {
		c.Detail = "commands cannot be confined (tier D), so none is started"
	}

	if len(lacks) > 0 {
		c.Detail += "; " + strings.Join(lacks, "; ")
	}

	return c
}

// checkDatabases looks at the agents' databases without opening any.
func (d *Daemon) checkDatabases(s *Setup) api.Check {
	c := api.Check{Name: "databases", OK: true, Detail: "nothing is known against any"}
	var bad, remedies []string
	for _, agent := range s.agentNames() {
		err := d.databases.Quarantined(agent)
		var damaged *agentdb.QuarantinedError
		switch {
		case err == nil:
		case errors.As(err, &damaged):
			bad = append(bad, fmt.Sprintf("that of %s cannot be used: %s", agent, damaged.Reason))
			remedies = append(remedies, damaged.Remedy())
		default:
			bad = append(bad, err.Error())
		}
	}

	if len(bad) > 0 {
		c.OK, c.Detail, c.Remedy = false, strings.Join(bad, "; "), strings.Join(remedies, "; ")
	}

	return c
}

// wanted are the places that ask for secrets: those of the configuration in force, and of what is
// on disk where that cannot come into force, which may be for want of one.
func (d *Daemon) wanted(now *Setup) []config.SecretRef {
	refs := slices.Concat(now.Config.SecretRefs(), now.wanted)
	if d.reloads != nil {
		refs = append(refs, d.reloads.wantedSecrets()...)
	}
	return refs
}

// checkSecrets says which stores of secrets answer, and which of the secrets that are asked for
// cannot be had, with the command that sets them (OSL-22).
func (d *Daemon) checkSecrets(now *Setup) api.Check {
	store, err := secret.New(secret.Options{Home: d.home.Dir})
	if err != nil {
		return api.Check{Name: "secrets", Detail: err.Error()}
	}

	c := api.Check{Name: "secrets", OK: true}
	places := "the keyring answers"
	if err := store.Reach(); err != nil {
		places = err.Error()
	}

	kept, err := store.List()
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message; no secret can be set before it is solved"
		return c
	}

	var names, missing, closed, remedies []string
	of := map[string][]string{}
	for _, r := range d.wanted(now) {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
		if by := cmp.Or(r.Of, r.Path); !slices.Contains(of[r.Name], by) {
			of[r.Name] = append(of[r.Name], by)
		}
	}

	slices.Sort(names)
	for _, name := range names {
		switch _, _, err := store.Get(name); {
		case errors.Is(err, secret.ErrNotSet):
			missing = append(missing, fmt.Sprintf("%s is not set (%s)", name, strings.Join(of[name], ", ")))
			remedies = append(remedies, "rouse secrets set "+name)
		case err != nil:
			closed = append(closed, fmt.Sprintf("%s cannot be read (%s): %v", name, strings.Join(of[name], ", "), err))
			remedies = append(remedies, "rouse secrets set "+name+" --in file")
		}
	}
	if lacking := append(missing, closed...); len(lacking) > 0 {
		c.OK, c.Detail, c.Remedy = false, strings.Join(lacking, "; ")+"; "+places, strings.Join(remedies, "; ")
		return c
	}

	c.Detail = fmt.Sprintf("%d kept, %d asked for, all can be had; %s", len(kept), len(names), places)
	return c
}

// checkSkills says whether the installed skills are what was installed.
func checkSkills(cfg *config.Config) api.Check {
	c := api.Check{Name: "skills", OK: true}
	found, err := install.Inspect(cfg.SkillCatalog())
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message; rouse skills list shows the same"
		return c
	}

	var changed []string
	broken := 0

	for _, s := range found.Skills {
		if s.State == "changed" {
			changed = append(changed, s.Name)
		}
	}

	for _, p := range found.Problems {
		if !p.Warning {
			broken++
		}
	}

	c.Detail = fmt.Sprintf("%d found", len(found.Skills))
	if broken > 0 {
		c.Detail += fmt.Sprintf(", %d cannot be loaded (see rouse skills list)", broken)
	}

	if len(changed) > 0 {
		c.OK = false
		c.Detail += "; changed since they were installed: " + text.List(changed, maxLogged)
		c.Remedy = "agents do not get them: rouse skills pin NAME if you changed them, else rouse skills install SOURCE --replace"
	}

	return c
}
