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
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/secret"
	"rouse/internal/awake"
	"rouse/internal/domain"
	"rouse/internal/noexec"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

// Doctor implements web.Backend.
func (d *Daemon) Doctor(ctx context.Context, offline bool) ([]api.Check, error) {
	now := d.Current()
	checks := []api.Check{d.checkConfig(now), d.checkHome(), now.checkDisk(d.home.Dir), d.checkModes(), d.checkLedger(ctx)}
	if c, shown := d.checkClones(); shown {
		checks = append(checks, c)
	}
	if d.shared() {
		checks = append(checks, d.checkNodes(ctx), d.checkValues(ctx))
	} else {
		checks = append(checks, d.checkBackup())
	}
	var asked []askedServer
	if now.problem == nil { // with a problem the models are not known
		models := now.checkModels()
		if offline && len(now.Config.Models) > 0 {
			models.NotTried = "their servers (--offline)"
		}

		checks = append(checks, now.checkExecutors()...)
		checks = append(checks, models)
		if !offline {
			asked = d.askServers(ctx, now)
			now.learnContexts(asked)
		}
		if checks = append(checks, now.checkContexts()); !offline {
			checks = append(checks, checkServers(now, asked)...)
		}
	}

	checks = append(checks, d.checkCalendars()...)
	for _, p := range d.modelPauses(time.Now()) {
		checks = append(checks, api.Check{Name: "model " + p.Model, Detail: p.Text(now.Config.Zone()), Remedy: "pay its provider and have a run tried at once (rouse retry RUN, rouse run JOB), or wait; when it answers, those that wait for it go on by themselves"})
	}

	clock, err := d.checkClock(ctx, time.Now(), now, asked)
	if err != nil {
		return nil, err
	}
	checks = append(checks, clock)

	checks = append(checks, d.checkSecrets(now), d.checkDatabases(now), d.checkWatches(ctx), checkSkills(ctx, now.Config), d.confinement.check(ctx, filepath.Join(d.home.Dir, "commands"), now.Config.Zone()), checkOpenFiles())
	if c, some, err := d.checkDefinitions(ctx); err != nil {
		return nil, err
	} else if some {
		checks = append(checks, c)
	}

	if c, some := now.checkWhereAgentsWork(); some {
		checks = append(checks, c)
	}
	checks = append(checks, d.checkMCP(ctx, offline)...)
	checks = append(checks, d.checkNotices(ctx)...)
	c, err := d.ledger.Counts(ctx)
	if err != nil {
		return nil, err
	}

	checks = append(checks, d.checkService())
	if d.reloads != nil { // a daemon
		checks = append(checks, d.checkDashboard())
		if beats := d.heartbeatState(); beats != nil {
			checks = append(checks, checkHeartbeat(beats, now.Config.Zone()))
		}
		if is := d.replicaState(); is != nil {
			checks = append(checks, checkReplica(is, now.Config.Zone()))
		}
	}
	if d.traces != nil {
		checks = append(checks, d.checkTraces())
	}

	if now.problem == nil {
		checks = append(checks, d.checkJobs(ctx, now))
		overdue, err := d.checkOverdue(ctx, now)
		if err != nil {
			return nil, err
		}
		checks = append(checks, overdue...)
		if c, some, err := d.checkFlaws(ctx, now); err != nil {
			return nil, err
		} else if some {
			checks = append(checks, c)
		}
	}

	queue := api.Check{Name: "queue", OK: true, Detail: fmt.Sprintf("%d queued, %d running, %d waiting", c.Queued, c.Running, c.Waiting)}
	blocked, err := d.checkQueue(ctx)
	if err != nil {
		return nil, err
	}

	if blocked != "" {
		queue.OK, queue.Detail, queue.Remedy = false, queue.Detail+"; "+blocked, "see the reason; the runs start by themselves when it is gone"
	}

	checks = append(checks, queue)
	for i, c := range checks {
		checks[i].Detail, checks[i].Remedy = d.runner.Redact(c.Detail), d.runner.Redact(c.Remedy)
	}
	return checks, nil
}

// checkQueue says why queued runs do not start.
func (d *Daemon) checkQueue(ctx context.Context) (string, error) {
	queued, err := d.ledger.Runs(ctx, ledger.RunFilter{State: domain.StateQueued, Limit: 100})
	if err != nil {
		return "", err
	}

	for _, r := range queued {
		if why := ledger.ObstaclesText(d.runner.Obstacles(ctx, r)); why != "" {
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
			// Not the same as s.problem: here an older configuration is in force, and the one on disk is not.
			c.OK, c.Detail = false, fmt.Sprintf("%s; the one of %s stays in use", formatProblems(found, len(found)), api.LocalTime(s.at, s.Config.Zone()))
			c.Remedy = "correct the file, and check it with: rouse config check; it takes effect by itself"
		}
	}

	return c
}

// checkDefinitions names the jobs that wait for their owner's approval before they start.
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

func (s *Setup) checkModels() api.Check {
	c := api.Check{Name: "models", OK: true}
	var names, lacking []string
	for _, m := range s.Config.Models {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Model))
	}

	c.Detail = strings.Join(names, ", ")
	for _, j := range s.Config.Jobs {
		// A playbook calls its tools without a model.
		if j.Prompts() && s.Config.ExecutorOf(&j) == nil && len(s.Config.Models) == 0 && config.On(j.Enabled) {
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

// maxUndelivered is how many notices of the outbox are counted.
const maxUndelivered = 100

// checkNotices checks each channel, and what is pending in the outbox.
func (d *Daemon) checkNotices(ctx context.Context) []api.Check {
	var out []api.Check
	cfg := d.Current().Config
	for name, err := range d.notifier.Check(ctx) {
		c := api.Check{Name: "channel " + name, OK: true, Detail: "can be reached", NotTried: "whether you see it (rouse notify TEXT)"}
		switch {
		case errors.Is(err, notify.ErrNotAsked):
			c.Detail, c.NotTried = "configured", "whether it takes anything (rouse notify TEXT --channel "+name+")"
		case errors.Is(err, notify.ErrUnavailable) && name == config.DefaultChannel && !cfg.Names(name):
			c.Detail, c.NotTried = "is not a default here: "+strings.TrimPrefix(err.Error(), "the desktop cannot be reached here: "), ""
			if len(cfg.Notifications) == 0 {
				c.Detail += "; no other channel is configured, so failures are only recorded (rouse incidents); to get notices, add a channel to notifications"
			}
		case err != nil:
			c.OK, c.Detail, c.NotTried = false, err.Error(), ""
			c.Remedy = "start rouse inside a desktop session, or take the channel out of notify: in the jobs"
			if !errors.Is(err, notify.ErrUnavailable) {
				c.Remedy = "see the message"
			}
		}

		out = append(out, c)
	}

	// Check returns a map, and the output has to be stable.
	slices.SortFunc(out, func(a, b api.Check) int { return strings.Compare(a.Name, b.Name) })
	waiting, err := d.ledger.UndeliveredNotices(ctx, maxUndelivered+1)
	quiet := len(waiting)
	waiting = slices.DeleteFunc(waiting, func(n ledger.Notice) bool { return strings.HasPrefix(n.Error, notify.QuietHours) })
	quiet -= len(waiting)
	switch {
	case err != nil:
		out = append(out, api.Check{Name: "outbox", Detail: err.Error()})
	case len(waiting) > 0:
		n, many := waiting[0], text.Plural(len(waiting), "notice")+" not delivered"
		if len(waiting) > maxUndelivered {
			many = fmt.Sprintf("more than %d notices not delivered", maxUndelivered)
		}
		out = append(out, api.Check{Name: "outbox", Detail: fmt.Sprintf("%s; the latest: %q (%s)", many, n.Title, cmp.Or(n.Error, "not tried yet")),
			Remedy: "they are delivered as soon as their channel can be reached"})
	default:
		c := api.Check{Name: "outbox", OK: true, Detail: "empty"}
		if quiet > 0 {
			c.Detail = text.Plural(quiet, "notice") + " for the end of quiet hours"
		}
		out = append(out, c)
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
		text := fmt.Sprintf("%s: %s (%s, %s", st.Job, st.Path, st.Mode, api.Watch{State: string(st.State), Waiting: st.Waiting, Round: st.Round, Waits: watchWaits(st.Waits)}.Text())
		used += st.Subscriptions
		if !st.LastScan.IsZero() {
			text += ", scanned " + st.LastScan.In(d.Zone()).Format("15:04:05 MST")
		}

		text += ")"
		switch why := watchProblem(st.Problem, st.Degraded); {
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

	// The limit is per user and shared with editors and the like, so show it before it is reached.
	if limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil && runtime.GOOS == "linux" {
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

// check tries how strongly commands can be confined, or answers what was found last where no program may be started.
func (c *confinement) check(ctx context.Context, scratch string, zone *time.Location) api.Check {
	c.mu.Lock()
	defer c.mu.Unlock()

	if noexec.Is(ctx) {
		if c.at.IsZero() {
			return api.Check{Name: "confinement", OK: true, Detail: "not tried yet", NotTried: "how strongly commands can be confined (rouse doctor tries it)"}
		}
		found := c.found
		found.Detail += "; tried " + api.LocalTime(c.at, zone) + ", and again by rouse doctor"
		return found
	}

	found := checkConfinement(ctx, scratch)
	if ctx.Err() == nil { // a trial that was cut off says nothing
		c.found, c.at = found, time.Now()
	}
	return found
}

// checkConfinement finds out how strongly commands can be confined here. A weak tier is no failed
// check: a job whose commands need more says so when it is run.
func checkConfinement(ctx context.Context, scratch string) api.Check {
	c := api.Check{Name: "confinement", OK: true}
	s, err := sandbox.New(sandbox.Options{Scratch: scratch})
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

// checkDatabases checks the agents' databases without opening any.
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

// wanted are the places that refer to secrets: in the configuration in force, and in the one on disk
// if it cannot come into force, which may be because a secret is missing.
func (d *Daemon) wanted(now *Setup) []config.SecretRef {
	refs := slices.Concat(now.Config.SecretRefs(), now.wanted)
	if d.reloads != nil {
		refs = append(refs, d.reloads.wantedSecrets()...)
	}
	return refs
}

// checkSecrets says whether the keyring answers, and which of the secrets that the configuration
// refers to cannot be read, with the command that sets them (OSL-22).
func (d *Daemon) checkSecrets(now *Setup) api.Check {
	// A new store, because one remembers a keyring that did not answer.
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

// checkSkills says whether installed skills were changed since, and which programs among them cannot run
// here (OSL-37).
func checkSkills(ctx context.Context, cfg *config.Config) api.Check {
	c := api.Check{Name: "skills", OK: true}
	found, err := install.Inspect(cfg.SkillCatalog())
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message; rouse skills list shows the same"
		return c
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
		switch {
		case !p.Warning:
			broken++
		case p.Rule == skills.RuleChanged:
			untrusted = append(untrusted, p.File)
		}
	}

	c.Detail = fmt.Sprintf("%d found", len(found.Skills))
	if programs > 0 {
		c.Detail += fmt.Sprintf(", %d with a program", programs)
		c.Detail += featureDetail()
	}
	if len(blocked) > 0 {
		c.Detail += ", of which cannot run here: " + text.List(blocked, maxLogged)
	}
	if broken > 0 {
		c.Detail += fmt.Sprintf(", %d cannot be loaded (see rouse skills list)", broken)
	}

	if len(changed) > 0 {
		c.OK = false
		c.Detail += "; changed since they were installed: " + text.List(changed, maxLogged)
		c.Remedy = "agents do not get them: " + text.List(whys, maxLogged)
	}
	if len(untrusted) > 0 {
		c.OK = false
		c.Detail += "; changed since they were trusted: " + text.List(untrusted, maxLogged)
		again := "agents do not get what was changed since it was trusted: look at it, and trust it again with: rouse skills trust FOLDER"
		c.Remedy = strings.TrimPrefix(c.Remedy+"; "+again, "; ")
	}

	return c
}
