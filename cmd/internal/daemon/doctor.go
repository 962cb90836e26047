package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent/sandbox"
	"rouse/agentdb"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/secret"
	"rouse/cmd/internal/why"
	"rouse/internal/awake"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/noexec"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

const seeMessage = "see the message"

// passed returns a check that found no problem.
func passed(name, detail string) api.Check { return api.Check{Name: name, OK: true, Detail: detail} }

// failed returns a check that found a problem.
func failed(name, detail, remedy string) api.Check {
	return api.Check{Name: name, Detail: detail, Remedy: remedy}
}

// undone returns a check that could not be made.
func undone(name string, err error) api.Check { return failed(name, err.Error(), seeMessage) }

// Doctor implements web.Backend.
func (d *Daemon) Doctor(ctx context.Context, offline bool) ([]api.Check, error) {
	s := d.Current()
	checks := []api.Check{d.checkConfig(s), d.checkHome(), checkDisk(s, d.home.Dir), d.checkModes(), d.checkLedger(ctx)}
	add := func(more ...api.Check) { checks = append(checks, more...) }
	add(d.checkClones()...)
	if d.shared() {
		add(d.checkNodes(ctx), d.checkValues(ctx))
	} else {
		add(d.checkBackup())
	}

	var asked []askedServer
	if s.Problem == nil { // else the models are not known
		models := checkModels(s)
		if offline && len(s.Config.Models) > 0 {
			models.NotTried = "their servers (--offline)"
		}
		add(append(checkExecutors(s), models)...)
		if !offline {
			asked = d.askServers(ctx, s)
			learnContexts(s, asked)
		}
		add(checkContexts(s))
		add(checkServers(s, asked)...)
	}

	add(d.checkCalendars()...)
	for _, p := range d.ModelPauses(time.Now()) {
		add(failed("model "+p.Model, p.Text(s.Config.Zone()), "pay its provider and have a run tried at once (rouse retry RUN, rouse run JOB), or wait; when it answers, those that wait for it go on by themselves"))
	}
	add(d.checkClock(ctx, time.Now(), s, asked), d.checkSecrets(s), d.checkDatabases(s), d.checkWatches(ctx), checkSkills(ctx, s.Config),
		d.confinement.check(ctx, filepath.Join(d.home.Dir, "commands"), s.Config.Zone()), checkOpenFiles())
	add(d.checkDefinitions(ctx)...)
	add(checkWhereAgentsWork(s)...)
	add(d.checkMCP(ctx, offline)...)
	add(d.checkNotices(ctx)...)
	add(d.checkService())
	if d.reloads != nil { // a daemon
		add(d.checkDashboard())
		if beats := d.heartbeatState(); beats != nil {
			add(checkHeartbeat(beats, s.Config.Zone()))
		}
		if is := d.replicaState(); is != nil {
			add(checkReplica(is, s.Config.Zone()))
		}
	}
	if d.traces != nil {
		add(d.checkTraces())
	}
	if s.Problem == nil {
		add(d.checkJobs(ctx, s))
		add(d.checkOverdue(ctx, s)...)
		add(d.checkFlaws(ctx, s)...)
	}
	add(d.checkQueue(ctx))

	for i, c := range checks {
		checks[i].Detail, checks[i].Remedy = d.runner.Redact(c.Detail), d.runner.Redact(c.Remedy)
	}
	return checks, nil
}

// checkQueue counts the unfinished runs, and reports why a queued run does not start.
func (d *Daemon) checkQueue(ctx context.Context) api.Check {
	n, err := d.ledger.Counts(ctx)
	queued, readErr := d.ledger.Runs(ctx, ledger.RunFilter{State: domain.StateQueued, Limit: 100})
	if err := errors.Join(err, readErr); err != nil {
		return undone("queue", err)
	}

	c := passed("queue", fmt.Sprintf("%d queued, %d running, %d waiting", n.Queued, n.Running, n.Waiting))
	for _, r := range queued {
		if why := ledger.ObstaclesText(d.runner.Obstacles(ctx, r)); why != "" {
			return failed(c.Name, fmt.Sprintf("%s; run %d of %s stays queued: %s", c.Detail, r.ID, r.Job, why), "see the reason; the runs start by themselves when it is gone")
		}
	}
	return c
}

func (d *Daemon) checkConfig(s *plan.Setup) api.Check {
	c := passed("configuration", fmt.Sprintf("%s, %s, %s", text.Plural(len(s.Config.Jobs), "job"), text.Plural(len(s.Config.Agents), "agent"), strings.Join(s.Config.Files, ", ")))
	if s.Problem != nil {
		c = failed(c.Name, s.Problem.Error(), "correct the file, and check it with: rouse config check")
	}
	for _, what := range s.Restart {
		c.Detail += "; " + what
	}

	if d.reloads != nil {
		if found := d.reloads.problemsOnDisk(); len(found) > 0 {
			// Unlike s.Problem: an older configuration is in force.
			return failed(c.Name, fmt.Sprintf("%s; the one of %s stays in use", formatProblems(found, len(found)), api.LocalTime(s.At, s.Config.Zone())),
				"correct the file, and check it with: rouse config check; it takes effect by itself")
		}
	}
	return c
}

// checkDefinitions names the jobs that wait for their owner's approval before they start.
func (d *Daemon) checkDefinitions(ctx context.Context) []api.Check {
	held, err := d.runner.UnapprovedJobs(ctx)
	if err != nil {
		return []api.Check{undone("definitions", err)}
	}
	if len(held) == 0 {
		return nil
	}

	jobs := slices.Sorted(maps.Keys(held))
	hows := slices.Compact(slices.Sorted(maps.Values(held)))
	return []api.Check{failed("definitions", fmt.Sprintf("%s; runs of %s wait until you have approved their definitions", strings.Join(hows, "; "), strings.Join(jobs, ", ")),
		"see to it that only you can write there, or look at each and approve it: rouse inbox")}
}

func checkModels(s *plan.Setup) api.Check {
	if lacking := s.MissingModel(); lacking != "" {
		return failed("models", lacking, "add one under models: in the configuration")
	}
	var names []string
	for _, m := range s.Config.Models {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Model))
	}
	return passed("models", cmp.Or(strings.Join(names, ", "), "none is configured, and no job needs one"))
}

// maxUndelivered is how many notices of the outbox are counted.
const maxUndelivered = 100

// checkNotices checks each channel, and the outbox.
func (d *Daemon) checkNotices(ctx context.Context) []api.Check {
	var out []api.Check
	cfg := d.Current().Config
	found := d.notifier.Check(ctx)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c, err := passed("channel "+name, "can be reached"), found[name]
		switch {
		case err == nil:
			c.NotTried = "whether you see it (rouse notify TEXT)"
		case errors.Is(err, notify.ErrNotAsked):
			c.Detail, c.NotTried = "configured", "whether it takes anything (rouse notify TEXT --channel "+name+")"
		case errors.Is(err, notify.ErrUnavailable) && name == config.DefaultChannel && !cfg.Names(name):
			c.Detail = "is not a default here: " + strings.TrimPrefix(err.Error(), "the desktop cannot be reached here: ")
			if len(cfg.Notifications) == 0 {
				c.Detail += "; no other channel is configured, so failures are only recorded (rouse incidents); to get notices, add a channel to notifications"
			}
		case errors.Is(err, notify.ErrUnavailable):
			c = failed(c.Name, err.Error(), "start rouse inside a desktop session, or take the channel out of notify: in the jobs")
		default:
			c = undone(c.Name, err)
		}
		out = append(out, c)
	}
	return append(out, d.checkOutbox(ctx))
}

func (d *Daemon) checkOutbox(ctx context.Context) api.Check {
	waiting, err := d.ledger.UndeliveredNotices(ctx, maxUndelivered+1)
	if err != nil {
		return undone("outbox", err)
	}

	all := len(waiting)
	waiting = slices.DeleteFunc(waiting, func(n ledger.Notice) bool { return strings.HasPrefix(n.Error, notify.QuietHours) })
	quiet := all - len(waiting)
	switch {
	case len(waiting) > 0:
		many := text.Plural(len(waiting), "notice") + " not delivered"
		if len(waiting) > maxUndelivered {
			many = fmt.Sprintf("more than %d notices not delivered", maxUndelivered)
		}
		return failed("outbox", fmt.Sprintf("%s; the latest: %q (%s)", many, waiting[0].Title, cmp.Or(waiting[0].Error, "not tried yet")), "they are delivered as soon as their channel can be reached")
	case quiet > 0:
		return passed("outbox", text.Plural(quiet, "notice")+" for the end of quiet hours")
	}
	return passed("outbox", "empty")
}

func (d *Daemon) checkWatches(ctx context.Context) api.Check {
	if d.watcher == nil {
		return passed("watches", "no daemon runs, so no folder is watched")
	}

	var fine, bad []string
	used := 0
	for _, st := range d.watcher.Status(ctx) {
		used += st.Subscriptions
		w := why.NewWatch(st)
		said := fmt.Sprintf("%s: %s (%s, %s", st.Job, st.Path, st.Mode, w.Text())
		if !st.LastScan.IsZero() {
			said += ", scanned " + st.LastScan.In(d.Zone()).Format("15:04:05 MST")
		}
		if why := why.WatchProblem(w); why != "" {
			bad = append(bad, said+"): "+why)
		} else {
			fine = append(fine, said+")")
		}
	}

	c := passed("watches", cmp.Or(strings.Join(fine, "; "), "no folder is watched"))
	if len(bad) > 0 {
		c = failed("watches", strings.Join(bad, "; "), "see the message; the folder is taken up as soon as it can be")
	}
	// The limit is per user and shared with editors and the like, so show it before it is reached.
	if limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil {
		c.Detail += fmt.Sprintf(" (%d folders in all; the system allows %s to all programs of a user)", used, strings.TrimSpace(string(limit)))
	}
	return c
}

// confinement remembers how strongly commands can be confined, since finding it out starts programs.
type confinement struct {
	mu    sync.Mutex
	at    time.Time
	found api.Check
}

// check tries how strongly commands can be confined. If no program may be started, it returns the last result.
func (c *confinement) check(ctx context.Context, scratch string, zone *time.Location) api.Check {
	c.mu.Lock()
	defer c.mu.Unlock()

	if noexec.Is(ctx) {
		found := c.found
		if c.at.IsZero() {
			found = passed("confinement", "not tried yet")
			found.NotTried = "how strongly commands can be confined (rouse doctor tries it)"
		} else {
			found.Detail += "; tried " + api.LocalTime(c.at, zone) + ", and again by rouse doctor"
		}
		return found
	}

	found := checkConfinement(ctx, scratch)
	if ctx.Err() == nil { // else the trial was cut off
		c.found, c.at = found, time.Now()
	}
	return found
}

// checkConfinement finds out how strongly commands can be confined here. A weak tier does not fail the check: a run whose
// commands need more reports it.
func checkConfinement(ctx context.Context, scratch string) api.Check {
	s, err := sandbox.New(sandbox.Options{Scratch: scratch})
	if err != nil {
		return passed("confinement", "commands cannot be confined, so none is started: "+err.Error())
	}
	defer func() { _ = s.Close() }()

	tier, lacks := s.Tier(ctx)
	said := "tier " + string(tier)
	if tier == sandbox.TierD {
		said = "commands cannot be confined (tier D), so none is started"
	}
	return passed("confinement", strings.Join(append([]string{said}, lacks...), "; "))
}

// checkDatabases checks the agents' databases without opening any.
func (d *Daemon) checkDatabases(s *plan.Setup) api.Check {
	var bad, remedies []string
	for _, agent := range s.AgentNames() {
		err := d.databases.Quarantined(agent)
		var damaged *agentdb.QuarantinedError
		switch {
		case errors.As(err, &damaged):
			bad = append(bad, fmt.Sprintf("that of %s cannot be used: %s", agent, damaged.Reason))
			remedies = append(remedies, damaged.Remedy())
		case err != nil:
			bad = append(bad, err.Error())
		}
	}
	if len(bad) > 0 {
		return failed("databases", strings.Join(bad, "; "), strings.Join(remedies, "; "))
	}
	return passed("databases", "nothing is known against any")
}

// wanted returns the references to secrets in the configuration in force and in the one on disk.
func (d *Daemon) wanted(now *plan.Setup) []config.SecretRef {
	refs := slices.Concat(now.Config.SecretRefs(), now.Wanted)
	if d.reloads != nil {
		refs = append(refs, d.reloads.wantedSecrets()...)
	}
	return refs
}

// checkSecrets reports whether the keyring answers, and which of the secrets that the configuration
// refers to cannot be read, with the command that sets them (OSL-22).
func (d *Daemon) checkSecrets(now *plan.Setup) api.Check {
	// A new store, because one remembers a keyring that did not answer.
	store, err := secret.New(secret.Options{Home: d.home.Dir})
	if err != nil {
		return undone("secrets", err)
	}
	places := "the keyring answers"
	if err := store.Reach(); err != nil {
		places = err.Error()
	}
	kept, err := store.List()
	if err != nil {
		return failed("secrets", err.Error(), "see the message; no secret can be set before it is solved")
	}

	of := map[string][]string{} // places that refer to a secret
	for _, r := range d.wanted(now) {
		if by := cmp.Or(r.Of, r.Path); !slices.Contains(of[r.Name], by) {
			of[r.Name] = append(of[r.Name], by)
		}
	}
	var missing, closed, remedies []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
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
		return failed("secrets", strings.Join(lacking, "; ")+"; "+places, strings.Join(remedies, "; "))
	}
	return passed("secrets", fmt.Sprintf("%d kept, %d asked for, all can be had; %s", len(kept), len(of), places))
}

// featureDetail lists the features that programs of skills can require, and those that are not here (OSL-37).
func featureDetail() string {
	var here, lacking []string
	for _, f := range skills.Features() {
		if f.Here {
			here = append(here, f.Name)
		} else {
			lacking = append(lacking, f.Name)
		}
	}
	return fmt.Sprintf(" (features: %s; not available: %s)", strings.Join(here, ", "), strings.Join(lacking, ", "))
}

// checkSkills reports the installed skills that were changed, and the programs of skills that cannot run here (OSL-37).
func checkSkills(ctx context.Context, cfg *config.Config) api.Check {
	found, err := install.Inspect(cfg.SkillCatalog())
	if err != nil {
		return failed("skills", err.Error(), "see the message; rouse skills list shows the same")
	}

	var changed, whys, untrusted, blocked []string
	broken, programs := 0, 0
	for _, s := range found.Skills {
		if s.State == "changed" {
			changed, whys = append(changed, s.Name), append(whys, s.Why)
		}
		if s.Manifest == nil {
			continue
		}
		programs++
		why := s.Manifest.Obstacles(runtime.GOOS)
		if s.Manifest.StaysAwake() {
			if err := awake.Check(ctx); err != nil {
				why = append(why, fmt.Sprintf("it needs this machine to be kept awake while it runs: %v", err))
			}
		}
		if len(why) > 0 {
			blocked = append(blocked, fmt.Sprintf("%s (%s)", s.Name, strings.Join(why, "; ")))
		}
	}
	for _, p := range found.Problems {
		if !p.Warning {
			broken++
		} else if p.Rule == skills.RuleChanged {
			untrusted = append(untrusted, p.File)
		}
	}

	c := passed("skills", fmt.Sprintf("%d found", len(found.Skills)))
	var remedies []string
	if programs > 0 {
		c.Detail += fmt.Sprintf(", %d with a program", programs) + featureDetail()
	}
	if len(blocked) > 0 {
		c.Detail += ", of which cannot run here: " + text.List(blocked, maxLogged)
	}
	if broken > 0 {
		c.Detail += fmt.Sprintf(", %d cannot be loaded (see rouse skills list)", broken)
	}
	if len(changed) > 0 {
		c.Detail += "; changed since they were installed: " + text.List(changed, maxLogged)
		remedies = append(remedies, "agents do not get them: "+text.List(whys, maxLogged))
	}
	if len(untrusted) > 0 {
		c.Detail += "; changed since they were trusted: " + text.List(untrusted, maxLogged)
		remedies = append(remedies, "agents do not get what was changed since it was trusted: look at it, and trust it again with: rouse skills trust FOLDER")
	}
	c.OK, c.Remedy = len(remedies) == 0, strings.Join(remedies, "; ")
	return c
}
