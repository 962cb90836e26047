package plan

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/fspath"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
)

// Triggers describes the triggers of a job, one text each.
func (s *Setup) Triggers(j *config.Job) []string {
	var out []string
	schedules, err := s.Config.Schedules(j)
	if err != nil {
		return []string{err.Error()}
	}

	for _, sch := range schedules {
		out = append(out, sch.Describe())
	}
	if j.RunOnStart {
		out = append(out, "at each start")
	}
	if j.Watch != nil {
		out = append(out, watchTrigger(j))
	}
	if j.Webhook != nil {
		out = append(out, "by a request to "+j.Webhook.Path)
	}
	for _, f := range j.Follows {
		out = append(out, fmt.Sprintf("after %s (%s)", f.Job, OutcomesText(f.On)))
	}
	if len(out) == 0 {
		out = append(out, "manually: rouse run "+string(j.Name))
	}
	return out
}

// OutcomesText lists outcomes.
func OutcomesText(on []domain.Outcome) string { return strings.Join(text.Strings(on), ", ") }

// KnownScope is Known for the scope of a pause. A pause of everything works without a configuration.
func (s *Setup) KnownScope(scope, name string) error {
	switch scope {
	case pause.Job:
		return s.Known(name, "")
	case pause.Agent:
		return s.Known("", name)
	}
	return nil
}

// Overlaps reports whether two pauses have a job in common.
func (s *Setup) Overlaps(scopeA, nameA, scopeB, nameB string) bool {
	agentOf := func(scope, name string) string {
		if j := s.Job(name); scope == pause.Job && j != nil {
			return j.Agent
		}
		return name
	}
	if scopeA == scopeB && scopeA != pause.All {
		return nameA == nameB
	}
	// One is about a job and the other about its agent, or one is about everything.
	return scopeA == pause.All || scopeB == pause.All || agentOf(scopeA, nameA) == agentOf(scopeB, nameB)
}

// Setup is a configuration with its plan. It is immutable: a reload replaces it as a whole.
type Setup struct {
	Config  *config.Config
	Plan    *Plan
	Problem error              // why Config is empty; nil if it can be used
	At      time.Time          // when it was loaded
	Restart []string           // settings in it that need a restart to take effect
	Wanted  []config.SecretRef // the secrets that a configuration with a problem refers to
}

// Known returns an error that suggests the nearest name if a job or an agent is not configured, or the problem of the configuration.
func (s *Setup) Known(job, agent string) error {
	if err := s.Usable(); err != nil {
		return err
	}
	if names := s.JobNames(); job != "" && !slices.Contains(names, job) {
		return &api.Error{Status: 404, Message: text.NoSuch("job", job, names), Usage: true}
	}
	if names := s.AgentNames(); agent != "" && !slices.Contains(names, agent) {
		return &api.Error{Status: 404, Message: text.NoSuch("agent", agent, names), Usage: true}
	}
	return nil
}

// JobNames returns the names of the configured jobs.
func (s *Setup) JobNames() []string {
	var out []string
	for _, j := range s.Config.Jobs {
		out = append(out, string(j.Name))
	}
	return out
}

// AgentNames returns the names of the configured agents.
func (s *Setup) AgentNames() []string {
	var out []string
	for _, a := range s.Config.Agents {
		out = append(out, string(a.Name))
	}
	return out
}

// Hints returns the lines that the start-up screen shows besides the jobs.
func (s *Setup) Hints() []string {
	if lacking := s.MissingModel(); lacking != "" {
		return []string{lacking + "; their runs stay queued"}
	}
	return nil
}

// MissingModel names the jobs that need a model if none is configured. It returns "" if there are no such jobs.
func (s *Setup) MissingModel() string {
	var lacking []string
	for _, j := range s.Config.Jobs {
		// A playbook calls its tools without a model.
		if j.Prompts() && s.Config.ExecutorOf(&j) == nil && len(s.Config.Models) == 0 && config.On(j.Enabled) {
			lacking = append(lacking, string(j.Name))
		}
	}
	if len(lacking) == 0 {
		return ""
	}
	return "no model is configured, and these jobs need one: " + strings.Join(lacking, ", ")
}

// FlagHint repeats the flags that a command needs to find this home again.
func (s *Setup) FlagHint() string {
	if len(s.Config.Files) == 0 || filepath.Base(s.Config.Files[0]) == "rouse.yaml" {
		return ""
	}

	// The hint is for the shell it is shown in, where a relative path reads better.
	path := s.Config.Files[0]
	if wd, err := os.Getwd(); err == nil {
		path = fspath.Shorten(wd, path)
	}
	return " --config " + path
}

// Usable returns an error that says why the configuration cannot be used.
func (s *Setup) Usable() error {
	if s.Problem == nil {
		return nil
	}
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("the configuration cannot be used:\n%v", s.Problem)}
}

// Job returns a configured job, or nil.
func (s *Setup) Job(name string) *config.Job {
	if i := slices.Index(s.JobNames(), name); i >= 0 {
		return &s.Config.Jobs[i]
	}
	return nil
}
