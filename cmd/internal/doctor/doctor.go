// Package doctor checks a home, its machine and its configuration for rouse doctor. Each failed
// check has a remedy. The package also has the checks of rouse config check that need a plan or
// compile modules of skills.
package doctor

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
)

// Checker checks one home.
type Checker struct {
	Setup     func() *plan.Setup // returns the current configuration
	Home      string
	Ledger    *ledger.Ledger
	Runner    *agent.Runner
	Pool      *pool.Pool
	Notifier  *notify.Notifier
	Explainer *why.Explainer
	Logger    *slog.Logger

	Serves     bool // this process is a daemon
	Supervised bool // the service manager started this process
	// ProblemsOnDisk and WantedSecrets return the problems and secret references of a newer
	// configuration on disk. Both are nil without a daemon.
	ProblemsOnDisk func() []api.Problem
	WantedSecrets  func() []config.SecretRef

	LedgerAddress string                             // address of a shared ledger
	Nodes         func(context.Context) []api.Check  // checks of a shared ledger; nil if it is not shared
	BackupProblem func() error                       // error of the last daily backup of the ledger
	OpenToOthers  func() (paths []string, err error) // files of the home that other users can read
	OpenFiles     func() api.Check
	Services      func() []api.Check // checks of the services of a daemon: dashboard, heartbeat, copies, traces

	confinement confinement
}

func (d *Checker) zone() *time.Location { return d.Setup().Config.Zone() }

// TryConfinement checks how strongly commands can be confined.
func (d *Checker) TryConfinement(ctx context.Context) api.Check {
	return d.confinement.check(ctx, filepath.Join(d.Home, "commands"), d.zone())
}

// problemText returns problems as text, one per line.
func problemText(found []api.Problem) string {
	lines := make([]string, len(found))
	for i, p := range found {
		lines[i] = config.Problem(p).String()
	}
	return strings.Join(lines, "\n")
}

const maxListed = 20 // maximum number of names in a message

const seeMessage = "see the message"

// Passed returns a check that found no problem.
func Passed(name, detail string) api.Check { return api.Check{Name: name, OK: true, Detail: detail} }

// Failed returns a check that found a problem.
func Failed(name, detail, remedy string) api.Check {
	return api.Check{Name: name, Detail: detail, Remedy: remedy}
}

// undone returns a failed check for a check that ended with an error.
func undone(name string, err error) api.Check { return Failed(name, err.Error(), seeMessage) }

// Doctor runs all checks. If offline is set, it does not use the network. If ctx forbids programs,
// checks that need one return their last result.
func (d *Checker) Doctor(ctx context.Context, offline bool) ([]api.Check, error) {
	s := d.Setup()
	checks := []api.Check{d.checkConfig(s), d.checkHome(), checkDisk(s, d.Home), d.checkModes(), d.checkLedger(ctx)}
	add := func(more ...api.Check) { checks = append(checks, more...) }
	add(d.checkClones()...)
	if d.Nodes != nil {
		add(d.Nodes(ctx)...)
	} else {
		add(d.checkBackup())
	}

	var asked []askedServer
	if s.Problem == nil { // otherwise the models are not known
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
	for _, p := range d.Explainer.ModelPauses(time.Now()) {
		add(Failed("model "+p.Model, p.Text(s.Config.Zone()), "pay its provider and have a run tried at once (rouse retry RUN, rouse run JOB), or wait; when it answers, those that wait for it go on by themselves"))
	}
	add(d.checkClock(ctx, time.Now(), s, asked), d.checkSecrets(s), d.checkDatabases(s), d.checkWatches(ctx), checkSkills(ctx, s.Config),
		d.TryConfinement(ctx), d.OpenFiles())
	add(d.checkDefinitions(ctx)...)
	add(checkWhereAgentsWork(s)...)
	add(d.checkMCP(ctx, offline)...)
	add(d.checkNotices(ctx)...)
	add(d.checkService())
	add(d.Services()...)
	if s.Problem == nil {
		add(d.checkJobs(ctx, s))
		add(d.checkOverdue(ctx, s)...)
		add(d.checkFlaws(ctx, s)...)
	}
	add(d.checkQueue(ctx))

	for i, c := range checks {
		checks[i].Detail, checks[i].Remedy = d.Runner.Plan.Redact(c.Detail), d.Runner.Plan.Redact(c.Remedy)
	}
	return checks, nil
}
