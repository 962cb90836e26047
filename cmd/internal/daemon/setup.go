package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/secret"
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

// known refuses names that are not configured, and suggests the nearest. It does not check "". It also refuses a configuration
// that cannot be used, whose names are unknown.
func (s *Setup) known(job, agent string) error {
	if err := s.usable(); err != nil {
		return err
	}
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

// Load reads the configuration; home overrides the one it names, "" does not. A secret that is missing blocks the jobs that need it, and
// nothing else.
func Load(path, home string) (*config.Config, error) { return LoadText(path, home, nil) }

// LoadText is Load for a configuration that is not written yet, as if it were the file at path.
func LoadText(path, home string, text []byte) (*config.Config, error) {
	o := loadOptions(path, home, os.Getenv)
	o.Text, o.HoldSecrets = text, true
	return config.Load(o)
}

// Check is Load for who wants to know what is wrong: a secret that is missing is.
func Check(path, home string) (*config.Config, error) { return CheckWith(path, home, os.Getenv) }

// CheckWith is Check with other variables than this process has.
func CheckWith(path, home string, getenv func(string) string) (*config.Config, error) {
	return config.Load(loadOptions(path, home, getenv))
}

func loadOptions(path, home string, getenv func(string) string) config.LoadOptions {
	return config.LoadOptions{Path: path, Home: home, Getenv: getenv, Tools: agent.Specs(), Secret: finder(path, home),
		Ollama: func() (string, string, bool) { return FindOllama(getenv) }}
}

// finder looks up secrets for a configuration. The store is opened by the first lookup.
func finder(path, home string) func(string) (string, bool, error) {
	var store *secret.Store
	return func(name string) (string, bool, error) {
		if store == nil {
			// The home may be set in the very file that is being loaded, so it is read ahead.
			dir, err := home, error(nil)
			if dir == "" {
				dir, err = config.Home(path, os.Getenv)
			}

			if err == nil {
				store, err = secret.New(secret.Options{Home: dir})
			}
			if err != nil {
				return "", false, err
			}
		}

		value, _, err := store.Get(name)
		// Not found is for the configuration to report, with the place that refers to it.
		if errors.Is(err, secret.ErrNotSet) {
			return "", false, nil
		}

		return value, err == nil, err
	}
}
