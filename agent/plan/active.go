package plan

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/internal/nofollow"
)

// Active is the plan in force, with values that are derived from it once for all runs.
type Active struct {
	Plan
	Desktop         func() bool            // reports whether there is a desktop session; optional
	Redactor        *redact.Redactor       // removes Secrets
	AnswerRedactor  *redact.Redactor       // removes only long Secrets, for API responses
	Specs           tool.Specs             // specs of all tools
	HostTools       tool.Specs             // tools for files and programs, which agents of ModeNone do not have
	WatchedFolders  []string               // UntrustedFolders and the watched folders of jobs
	Writers         Writers                // folders that an agent or an untrusted source can write to
	WritableFolders nofollow.UntrustedDirs // folders of Writers, workdirs and folders of skills
}

// NewActive derives the values of a plan. specs are the specs of the built-in tools. secrets are
// redacted from records in addition to those of the plan.
func NewActive(p Plan, specs, hostTools tool.Specs, secrets []string) *Active {
	p.Masks, p.Zone = p.Masks.Resolved(), cmp.Or(p.Zone, time.UTC)
	out := &Active{Plan: p, WatchedFolders: watchedFolders(p), Writers: writersOf(p), Specs: slices.Concat(specs, p.OfferSpecs(), p.ServerSpecs()), HostTools: hostTools}
	out.WritableFolders = out.Writers.boundary(p)
	out.Hide(secrets)
	return out
}

// Hide sets the secrets that are redacted from the records of all runs.
func (p *Active) Hide(secrets []string) {
	p.Secrets, p.Redactor = secrets, redact.New(secrets)
	p.AnswerRedactor = redact.New(slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < longSecret }))
}

// RedactorWith returns a redactor that also removes other secrets.
func (p *Active) RedactorWith(more []string) *redact.Redactor {
	return redact.New(slices.Concat(p.Secrets, more))
}

// longSecret is the minimum length, in bytes, of a secret that is redacted from API responses. A
// shorter secret may be part of a name.
const longSecret = 8

// watchedFolders returns the folders in which untrusted sources can leave files.
func watchedFolders(p Plan) (out []string) {
	for _, folder := range p.UntrustedFolders {
		out = append(out, filepath.Clean(folder))
	}
	for _, j := range p.Jobs {
		if j.Watched.Folder != "" {
			out = append(out, filepath.Clean(j.Watched.Folder))
		}
	}
	return tool.WithResolvedLinks(out)
}

// Writer is a folder that an agent or an untrusted source can write to.
type Writer struct {
	Agent   string // "" for an untrusted source
	Folder  string
	program bool // only the executor of the agent writes there
}

type Writers []Writer

// writersOf returns the writers of the whole plan, because the files of one agent can mislead
// another.
func writersOf(p Plan) (out Writers) {
	for _, folder := range watchedFolders(p) {
		out = append(out, Writer{"", folder, false})
	}
	if p.Clones != "" {
		out = append(out, Writer{"", p.Clones, false})
	}
	programs := func(agent string, s *executor.Settings) {
		if s == nil {
			return
		}
		for _, folder := range s.Writes() {
			out = append(out, Writer{agent, folder, true})
		}
	}
	for _, a := range p.Agents {
		paths := a.Write
		if len(paths) == 0 {
			paths = []string{a.Workdir}
		}
		for _, path := range paths {
			out = append(out, Writer{a.Name, filepath.Clean(path), false})
		}
		programs(a.Name, a.Executor)
	}
	for _, j := range p.Jobs {
		programs(j.Agent, j.Executor)
	}
	return out
}

// boundary returns the folders with content that can change between the approval of a command and
// its execution.
func (w Writers) boundary(p Plan) nofollow.UntrustedDirs {
	var out []string
	for _, one := range w {
		out = append(out, one.Folder)
	}
	for _, a := range p.Agents {
		out = append(out, filepath.Clean(a.Workdir))
		for _, s := range a.Skills.All() { // an update can change a skill
			out = append(out, filepath.Clean(s.Dir))
		}
	}
	return nofollow.NewBoundary(out...)
}

// Overlaps reports whether a path equals, lies in, or contains one of the folders.
func (w Writers) Overlaps(path string) bool { return w.Of(path, "") != nil }

// Of returns the first folder that a path equals, lies in, or contains, or nil. It ignores folders
// that only the executor of the given agent writes to.
func (w Writers) Of(path, agent string) *Writer {
	glance := nofollow.NewStatCache()
	held := glance.UntrustedDirs(path)
	for i, one := range w {
		if one.program && one.Agent == agent && agent != "" {
			continue
		}
		if glance.UntrustedDirs(one.Folder).Covers(path) || held.Covers(one.Folder) {
			return &w[i]
		}
	}
	return nil
}
