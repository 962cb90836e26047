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

// Triggers returns a description of each trigger of a job.
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

// OutcomesText returns a list of outcomes as text.
func OutcomesText(on []domain.Outcome) string { return strings.Join(text.Strings(on), ", ") }

// KnownScope checks the target of a pause like Known. A pause of everything needs no configuration.
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
	// One pauses a job and the other its agent, or one pauses everything.
	return scopeA == pause.All || scopeB == pause.All || agentOf(scopeA, nameA) == agentOf(scopeB, nameB)
}

// Setup is a configuration with its plan. It is immutable; a reload replaces it.
type Setup struct {
	Config  *config.Config
	Plan    *Plan
	Problem error              // if not nil, Config is empty and this is the reason
	At      time.Time          // when it was loaded
	Restart []string           // changed settings that need a restart to take effect
	Wanted  []config.SecretRef // secrets used by a configuration that has a problem
}

// Known returns an error if the job or agent is not configured, with the nearest name as a
// suggestion. It also returns an error if the configuration cannot be used. Empty names are not
// checked.
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

// Hints returns additional lines for the start-up screen.
func (s *Setup) Hints() []string {
	if lacking := s.MissingModel(); lacking != "" {
		return []string{lacking + "; their runs stay queued"}
	}
	return nil
}

// MissingModel returns a message with the jobs that need a model if no model is configured.
// Otherwise it returns an empty string.
func (s *Setup) MissingModel() string {
	var lacking []string
	for _, j := range s.Config.Jobs {
		// A playbook needs no model.
		if j.Prompts() && s.Config.ExecutorOf(&j) == nil && len(s.Config.Models) == 0 && config.On(j.Enabled) {
			lacking = append(lacking, string(j.Name))
		}
	}
	if len(lacking) == 0 {
		return ""
	}
	return "no model is configured, and these jobs need one: " + strings.Join(lacking, ", ")
}

// FlagHint returns the flags that a command needs to find this home.
func (s *Setup) FlagHint() string {
	if len(s.Config.Files) == 0 || filepath.Base(s.Config.Files[0]) == "rouse.yaml" {
		return ""
	}

	// The hint is for the current shell, where a relative path is easier to read.
	path := s.Config.Files[0]
	if wd, err := os.Getwd(); err == nil {
		path = fspath.Shorten(wd, path)
	}
	return " --config " + path
}

// Usable returns an error if the configuration cannot be used.
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
