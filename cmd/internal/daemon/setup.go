package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/fspath"
	"rouse/internal/text"
)

// Setup is a configuration with the plan made of it. It never changes: a reload replaces it as a
// whole, and whatever has started goes on with its own.
type Setup struct {
	Config  *config.Config
	plan    *Plan
	problem error // why Config is empty
	at      time.Time
	restart []string           // settings in it that need a restart to take effect
	wanted  []config.SecretRef // the secrets that a configuration with a problem refers to
}

// known refuses names that are not configured, and suggests the nearest; "" is not checked.
func (s *Setup) known(job, agent string) error {
	if names := s.JobNames(); job != "" && !slices.Contains(names, job) {
		return &api.Error{Status: 404, Message: text.NoSuch("job", job, names), Usage: true}
	}
	if names := s.agentNames(); agent != "" && !slices.Contains(names, agent) {
		return &api.Error{Status: 404, Message: text.NoSuch("agent", agent, names), Usage: true}
	}
	return nil
}

func (s *Setup) JobNames() []string {
	var out []string
	for _, j := range s.Config.Jobs {
		out = append(out, string(j.Name))
	}
	return out
}

func (s *Setup) agentNames() []string {
	var out []string
	for _, a := range s.Config.Agents {
		out = append(out, string(a.Name))
	}
	return out
}

// Hints are what the start-up screen shows besides the jobs.
func (s *Setup) Hints() []string {
	var out []string
	if c := s.checkModels(); !c.OK {
		out = append(out, c.Detail+"; their runs stay queued")
	}
	return out
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

// usable says why the configuration cannot be worked with.
func (s *Setup) usable() error {
	if s.problem == nil {
		return nil
	}
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("the configuration cannot be used:\n%v", s.problem)}
}

// job is a configured job, nil when there is none of that name.
func (s *Setup) job(name string) *config.Job {
	for i := range s.Config.Jobs {
		if string(s.Config.Jobs[i].Name) == name {
			return &s.Config.Jobs[i]
		}
	}
	return nil
}
