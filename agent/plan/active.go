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

// Active is the plan in force, with the values that are derived from it once for all runs.
type Active struct {
	Plan
	Desktop         func() bool       // reports whether there is a desktop session; optional
	Redactor        *redact.Redactor  // removes Secrets
	AnswerRedactor  *redact.Redactor  // removes the long ones of Secrets, for answers of the API
	Specs           tool.Specs        // of all tools
	HostTools       tool.Specs        // of the tools that reach files or start programs, which agents of ModeNone lack
	WatchedFolders  []string          // UntrustedFolders and the folders that jobs watch
	Writers         Writers           // folders in which an agent or a stranger can write
	WritableFolders nofollow.Boundary // the folders of Writers and those of skills
}

// NewActive derives the values. specs are those of the tools that come with no plan, and secrets
// are removed from records beside those of the plan.
func NewActive(p Plan, specs, hostTools tool.Specs, secrets []string) *Active {
	p.Masks, p.Zone = p.Masks.Resolved(), cmp.Or(p.Zone, time.UTC)
	out := &Active{Plan: p, WatchedFolders: watchedFolders(p), Writers: writersOf(p), Specs: slices.Concat(specs, p.OfferSpecs(), p.ServerSpecs()), HostTools: hostTools}
	out.WritableFolders = out.Writers.boundary(p)
	out.Hide(secrets)
	return out
}

// Hide sets the secrets that are removed from the records of all runs.
func (p *Active) Hide(secrets []string) {
	p.Secrets, p.Redactor = secrets, redact.New(secrets)
	p.AnswerRedactor = redact.New(slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < longSecret }))
}

// RedactorWith returns a redactor that also removes other secrets.
func (p *Active) RedactorWith(more []string) *redact.Redactor {
	return redact.New(slices.Concat(p.Secrets, more))
}

// longSecret is the shortest secret, in bytes, that is removed from API answers. A shorter one may
// be part of a name.
const longSecret = 8

// watchedFolders returns the folders in which strangers can leave files.
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

// Writer is a folder in which an agent or a stranger can write.
type Writer struct {
	Agent   string // "" for strangers
	Folder  string
	program bool // its executor writes there, and nothing else of the agent
}

type Writers []Writer

// writersOf lists those of a whole plan, because an agent may be led by what another one wrote.
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

// boundary is where what lies there can change between the approval of a command and its call.
func (w Writers) boundary(p Plan) nofollow.Boundary {
	var out []string
	for _, one := range w {
		out = append(out, one.Folder)
	}
	for _, a := range p.Agents {
		out = append(out, filepath.Clean(a.Workdir))
		for _, s := range a.Skills.All() { // a skill can be brought up to date
			out = append(out, filepath.Clean(s.Dir))
		}
	}
	return nofollow.NewBoundary(out...)
}

// Overlaps reports whether a path is such a folder, lies in one or holds one.
func (w Writers) Overlaps(path string) bool { return w.Of(path, "") != nil }

// Of returns the first such folder that a path is, lies in or holds, or nil. It ignores folders
// that only the executor of the given agent writes.
func (w Writers) Of(path, agent string) *Writer {
	glance := nofollow.NewGlance()
	held := glance.Boundary(path)
	for i, one := range w {
		if one.program && one.Agent == agent && agent != "" {
			continue
		}
		if glance.Boundary(one.Folder).Covers(path) || held.Covers(one.Folder) {
			return &w[i]
		}
	}
	return nil
}
