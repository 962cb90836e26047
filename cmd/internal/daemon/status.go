package daemon

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
)

// Status returns the state of the process, for rouse status.
func (d *Daemon) Status(ctx context.Context) (api.Status, error) {
	c, err := d.ledger.Counts(ctx)
	st := api.Status{PID: os.Getpid(), Version: Version(), Home: d.home.Dir, StartedAt: api.At(d.startedAt), Zone: d.Zone().String(), Ready: d.ready.Load(), Foreground: d.reloads == nil,
		Queued: c.Queued, Running: c.Running, Waiting: c.Waiting}
	st.Dashboard, st.DashboardProblem = d.DashboardURL("/"), d.DashboardProblem()
	st.Problem = d.LedgerProblem()
	if beats := d.heartbeatState(); beats != nil {
		st.Heartbeat = *beats
	}
	st.Replica.Unusable = []string{}
	if is := d.replicaState(); is != nil {
		st.Replica = *is
	}
	if e, err := d.Engine(ctx); err == nil {
		st.Engine = e
	}
	now := d.Current()
	if files := now.Config.Files; len(files) > 0 {
		st.Config = files[0]
	}

	st.ConfigAt, st.ConfigProblems, st.ConfigRestart = api.At(now.At), []api.Problem{}, list(now.Restart)
	// A command reads the configuration afresh, so it has no older one in force to report on.
	if d.reloads != nil {
		st.ConfigProblems = append(st.ConfigProblems, d.reloads.problemsOnDisk()...)
	}

	st.WatchProblems = []string{}
	for job, w := range d.Watches(ctx) {
		if w.Problem != "" {
			st.WatchProblems = append(st.WatchProblems, job+": "+w.Problem)
		}
	}
	slices.Sort(st.WatchProblems)

	st.Calendars = plan.Calendars(d.Current().Config)
	st.ModelPauses = d.ModelPauses(d.ledger.Now())

	return st, err
}

// canDeliver returns yes, no or unknown, depending on whether a channel can deliver now, and the reason.
func (d *Daemon) canDeliver(ctx context.Context, channel string) (can, why string) {
	switch err := d.notifier.CanDeliver(ctx, channel); {
	case err == nil:
		return "yes", ""
	case errors.Is(err, notify.ErrNotAsked):
		return "unknown", err.Error()
	default:
		return "no", err.Error()
	}
}

// Set by -ldflags "-X rouse/cmd/internal/daemon.version=v1.2.3" in releases, else empty.
var (
	version  string
	commit   string
	date     string // of the commit, RFC 3339
	releases string // the address that says which releases there are
)

// Build says what this program was built of.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "" where nobody knows
	Date     string `json:"date"`   // of the commit
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Releases string `json:"releases"` // the address that says which releases there are; "" where the build names none
}

// ThisBuild returns the build of this program.
func ThisBuild() Build {
	return Build{Version: Version(), Commit: cmp.Or(commit, built("vcs.revision")), Date: cmp.Or(date, built("vcs.time")), Modified: built("vcs.modified") == "true",
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Releases: releases}
}

// Version returns the version of the release, or of the module, or the commit, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	if revision := built("vcs.revision"); len(revision) >= 12 {
		return "devel-" + revision[:12]
	}
	return "devel"
}

// built returns a setting that Go recorded in the build, or "".
func built(setting string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == setting {
				return s.Value
			}
		}
	}
	return ""
}
